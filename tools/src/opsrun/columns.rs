//! Text in aligned columns.

#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    title: &'static str,
    is_number: bool,
}

impl Column {
    /// A column that is aligned to the left.
    pub(crate) const fn text(title: &'static str) -> Self {
        Self {
            title,
            is_number: false,
        }
    }

    /// A column that is aligned to the right.
    pub(crate) const fn number(title: &'static str) -> Self {
        Self {
            title,
            is_number: true,
        }
    }
}

/// Returns a table with the details of each row in a line of its own below the row.
pub(crate) fn with_details(table: &str, details: &[Option<String>], has_header: bool) -> String {
    let mut text = String::new();
    let mut details = details.iter();
    for (number, line) in table.lines().enumerate() {
        text.push_str(line);
        text.push('\n');
        let is_row = number > 0 || !has_header;
        if let Some(Some(detail)) = is_row.then(|| details.next()).flatten() {
            text.push('\t');
            text.push_str(detail);
            text.push('\n');
        }
    }
    text
}

/// Returns the rows below the titles of the columns, one row per line.
pub(crate) fn table<const N: usize>(
    columns: &[Column; N],
    rows: &[[String; N]],
    has_header: bool,
) -> String {
    let header = has_header.then(|| columns.map(|column| column.title.to_owned()));
    let lines: Vec<&[String; N]> = header.iter().chain(rows).collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    });
    let mut text = String::new();
    for line in lines {
        let mut printed = String::new();
        for ((cell, width), column) in line.iter().zip(widths).zip(columns) {
            printed.push_str(&match column.is_number {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:<width$}  "),
            });
        }
        text.push_str(printed.trim_end());
        text.push('\n');
    }
    text
}

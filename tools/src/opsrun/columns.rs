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

/// Returns the rows as text, one entry per row, and the titles of the columns before them if there
/// is a header.
///
/// If a row is wider than `width`, the columns from the one with number `rest` on are in a second
/// line below each row.
pub(crate) fn table<const N: usize>(
    columns: &[Column; N],
    rows: &[[String; N]],
    has_header: bool,
    (width, rest): (Option<usize>, usize),
) -> Vec<String> {
    let titles = has_header.then(|| columns.map(|column| column.title.to_owned()));
    let rows: Vec<&[String; N]> = titles.iter().chain(rows).collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    });
    let line = |row: &[String; N], columns_shown: std::ops::Range<usize>| {
        let mut text = String::new();
        for number in columns_shown {
            let (cell, width) = (&row[number], widths[number]);
            text.push_str(&match columns[number].is_number {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:<width$}  "),
            });
        }
        text.trim_end().to_owned()
    };
    let whole: Vec<String> = rows.iter().map(|row| line(row, 0..N)).collect();
    let is_wide = |line: &String| width.is_some_and(|width| line.chars().count() > width);
    match whole.iter().any(is_wide) {
        false => whole,
        true => rows
            .iter()
            .map(|row| format!("{}\n\t{}", line(row, 0..rest), line(row, rest..N)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_table_has_two_lines_per_row() {
        let columns = [
            Column::text("A"),
            Column::number("Count"),
            Column::text("Z"),
        ];
        let rows = [["one", "1", "the end"].map(str::to_owned)];
        let table = |width| table(&columns, &rows, true, (width, 2));
        let whole = ["A    Count  Z", "one      1  the end"];
        assert_eq!(table(None), whole);
        assert_eq!(table(Some(19)), whole);
        assert_eq!(
            table(Some(18)),
            ["A    Count\n\tZ", "one      1\n\tthe end"]
        );
    }
}

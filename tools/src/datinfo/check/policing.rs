//! The administrator's limits of shared resources, and the use of the user.

use std::path::Path;

use dat_conf::limits::{Limits, Resource, Scope};
use host::slots;
use nix::unistd::geteuid;

use super::item::Item;

const SUBJECT: &str = "policing";

pub(super) fn items() -> Vec<Item> {
    let user = geteuid().as_raw();
    let limits = Limits::of_user(user, || host::user::name_of(user));
    of(&limits, Path::new(slots::DIRECTORY))
}

fn of(limits: &Limits, directory: &Path) -> Vec<Item> {
    let Some(path) = &limits.path else {
        let text = format!(
            "{} does not exist, so no resource is limited",
            limits.file().display()
        );
        return vec![Item::passed(SUBJECT, text)];
    };
    let file = path.display();
    let fault = |fault: &dat_conf::limits::Fault| {
        let text = format!("{file}: {fault}, so it sets no limit");
        Item::problem(SUBJECT, text, "correct it, see dat-limits.conf(5)")
    };
    let mut items: Vec<_> = limits.faults.iter().map(fault).collect();
    for resource in Resource::ALL {
        if let Some(limit) = limits.limit(Scope::Process, resource) {
            let text = format!("{} of a process: at most {}", resource.word(), limit.max);
            items.push(Item::passed(SUBJECT, text));
        }
        if limits.limit(Scope::User, resource).is_some() {
            items.push(of_user(limits, resource, directory));
        }
    }
    if items.is_empty() {
        let text = format!("{file} limits no resource of this user");
        items.push(Item::passed(SUBJECT, text));
    }
    items
}

/// Compares the use of all processes of the user with the limit.
fn of_user(limits: &Limits, resource: Resource, directory: &Path) -> Item {
    let limit = limits.limit(Scope::User, resource).unwrap_or_default();
    let word = resource.word();
    let used = slots::open_existing(directory).and_then(|file| match file {
        Some(file) => slots::taken(file, resource as usize, limit.max),
        None => Ok(0),
    });
    match used {
        Err(error) => Item::problem(
            SUBJECT,
            format!(
                "processes of this user cannot share a file in {} ({error}), so each may use {} \
                 {word}",
                directory.display(),
                limit.max
            ),
            format!(
                "make {} a directory that this user may enter",
                directory.display()
            ),
        ),
        Ok(used) if used < limit.max => Item::passed(
            SUBJECT,
            format!("{word} of this user: {used} of at most {}", limit.max),
        ),
        Ok(used) => Item::problem(
            SUBJECT,
            format!(
                "{word} of this user: {used} of at most {}, none is free",
                limit.max
            ),
            format!(
                "end programs of this user, or raise the limit in line {} of {}",
                limit.line,
                limits.file().display()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::item::assert_says;

    fn limits(text: &str) -> Limits {
        let mut limits = Limits::parse(text, geteuid().as_raw(), || None);
        limits.path = Some("/etc/dat-limits.conf".into());
        limits
    }

    #[test]
    fn without_a_file_nothing_is_limited() {
        let items = of(&Limits::default(), Path::new("/nonexistent"));
        assert_says(&items[0].to_string(), "ok: policing: ");
        let items = of(&limits("nobody user services 1"), Path::new("/nonexistent"));
        assert_says(&items[0].to_string(), "limits no resource of this user");
    }

    #[test]
    fn limits_are_shown_with_the_use_of_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let text = "* process connections 9\n* user connections 2\n";
        let shown = |n: usize| of(&limits(text), dir.path())[n].to_string();
        assert_says(
            &shown(0),
            "ok: policing: connections of a process: at most 9",
        );
        assert_says(
            &shown(1),
            "ok: policing: connections of this user: 0 of at most 2",
        );
        let process = slots::Slots::new(slots::open_own(dir.path()).unwrap());
        let kind = Resource::Connections as usize;
        process.take(kind, 2).unwrap();
        assert_says(&shown(1), "connections of this user: 1 of at most 2");
        process.take(kind, 2).unwrap();
        assert_says(
            &shown(1),
            "problem: policing: connections of this user: 2 of at most 2",
        );
        assert_says(
            &shown(1),
            "raise the limit in line 2 of /etc/dat-limits.conf",
        );
    }

    #[test]
    fn a_bad_line_and_a_missing_directory_are_problems() {
        let items = of(
            &limits("* user\n* user services 1\n"),
            Path::new("/nonexistent"),
        );
        assert_says(
            &items[0].to_string(),
            "/etc/dat-limits.conf: line 1: 2 words instead of 4",
        );
        assert_says(
            &items[1].to_string(),
            "problem: policing: processes of this user cannot",
        );
    }
}

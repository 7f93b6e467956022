use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::*;

type Check = fn(&Range, &Mappings) -> Result<Backing, RnicError>;

/// The ways of a check: by a query for each mapping, by the list, by the pages.
const BY_QUERY: Check = |range, maps| match range.check_each(maps.0.as_ref().unwrap().as_fd()) {
    Ok(checked) => checked,
    Err(Unknown) => panic!("the kernel does not describe mappings"),
};
const BY_LIST: Check = |range, maps| {
    let listed = range.check_listed(maps.0.as_ref().unwrap().as_fd());
    listed.unwrap()
};
const BY_PAGES: Check = |range, _| range.check_residency();

/// Returns the ways that the kernel offers and that distinguish rights.
fn ways(maps: &Mappings) -> Vec<Check> {
    let here = std::ptr::from_ref(maps).addr() as u64;
    match query(maps.0.as_ref().unwrap().as_fd(), here) {
        Ok(_) => vec![BY_QUERY, BY_LIST],
        Err(Unknown) => vec![BY_LIST],
    }
}

/// Pages with these rights, one for each element, and an unmapped page after them.
struct Pages {
    start: *mut libc::c_void,
    count: usize,
}

impl Pages {
    fn new(rights: &[ProtFlags], file: Option<&std::fs::File>) -> Self {
        let (page, count) = (page_size(), rights.len());
        let (none, private) = (ProtFlags::empty(), MapFlags::PRIVATE);
        // SAFETY: new mappings, to which no other pointer exists; the later ones replace pages of
        // the first.
        unsafe {
            let start = mmap_anonymous(std::ptr::null_mut(), (count + 1) * page, none, private);
            let start = start.unwrap();
            for (index, rights) in rights.iter().enumerate() {
                let at = start.byte_add(index * page);
                let fixed = MapFlags::FIXED;
                match file {
                    Some(file) => mmap(at, page, *rights, MapFlags::SHARED | fixed, file, 0),
                    None => mmap_anonymous(at, page, *rights, private | fixed),
                }
                .unwrap();
            }
            munmap(start.byte_add(count * page), page).unwrap();
            Self { start, count }
        }
    }

    /// The range of `count` pages from page `from` on, without its first and last byte.
    fn range(&self, from: usize, count: usize, write: bool) -> Range {
        let (start, page) = (self.start.expose_provenance() as u64, page_size() as u64);
        let addr = start + from as u64 * page;
        Range {
            addr: addr + 1,
            end: addr + count as u64 * page - 1,
            write,
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages are this value's, and no reference to them exists.
        unsafe { munmap(self.start, self.count * page_size()) }.unwrap();
    }
}

fn is_refused(checked: &Result<Backing, RnicError>, reason: &RnicError) -> bool {
    use RnicError::InvalidArgument;
    match (checked, reason) {
        (Err(InvalidArgument(found)), InvalidArgument(expected)) => found == expected,
        _ => false,
    }
}

#[test]
fn a_range_needs_the_granted_right_in_each_of_its_mappings() {
    let (none, read, write) = (ProtFlags::empty(), ProtFlags::READ, ProtFlags::WRITE);
    let rights = [read | write, read, write, none, read | write];
    let pages = Pages::new(&rights, None);
    let maps = Mappings::open().unwrap();
    for way in ways(&maps) {
        for from in 0..rights.len() {
            for count in 1..=rights.len() - from {
                let range = &rights[from..from + count];
                for (for_writing, right) in [(true, write), (false, read)] {
                    let checked = way(&pages.range(from, count, for_writing), &maps);
                    if range.iter().all(|it| it.contains(right)) {
                        assert_eq!(checked.unwrap(), Backing::Anonymous);
                    } else {
                        assert!(is_refused(&checked, &NO_RIGHT), "{range:?}: {checked:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_range_with_an_unmapped_page_is_refused_in_each_way() {
    let pages = Pages::new(&[ProtFlags::READ | ProtFlags::WRITE], None);
    let maps = Mappings::open().unwrap();
    let start = pages.range(0, 1, true).addr;
    let ranges = [
        pages.range(0, 2, true),
        pages.range(1, 1, false),
        Range {
            addr: 8,
            end: 24,
            write: true,
        },
        Range {
            addr: start,
            end: start + (1 << 46),
            write: true,
        },
        Range {
            addr: u64::MAX - 1,
            end: u64::MAX,
            write: false,
        },
    ];
    for way in ways(&maps).into_iter().chain([BY_PAGES]) {
        for range in &ranges {
            let checked = way(range, &maps);
            assert!(is_refused(&checked, &NOT_MAPPED), "{range:?}: {checked:?}");
        }
        assert!(way(&pages.range(0, 1, true), &maps).is_ok());
        let empty = Range {
            addr: 5,
            end: 5,
            write: true,
        };
        assert!(way(&empty, &maps).is_ok());
    }
    assert!(maps.check(u64::MAX, 1, false).is_err());
    assert!(maps.check(start, u64::MAX, false).is_err());
}

#[test]
fn memory_of_a_file_is_distinguished_from_anonymous_memory() {
    let file = tempfile();
    let read = ProtFlags::READ;
    let pages = Pages::new(&[read, read], Some(&file));
    let maps = Mappings::open().unwrap();
    for way in ways(&maps) {
        assert_eq!(
            way(&pages.range(1, 1, false), &maps).unwrap(),
            Backing::File
        );
    }
}

fn tempfile() -> std::fs::File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    std::fs::File::from(rustix::fs::memfd_create(c"mapped", flags).unwrap())
}

#[test]
fn lines_are_parsed_whatever_their_paths_are() {
    let parsed = parse(b"00400000-0040b000 r-xp 00000000 08:01 1234 /usr/bin/p\xff\xff q");
    let expected = Mapping {
        start: 0x40_0000,
        end: 0x40_b000,
        is_readable: true,
        is_writable: false,
        has_file: true,
    };
    assert_eq!(parsed, Some(expected));
    let anonymous = parse(b"7f0000000000-7f0000001000 -w-s 00000000 00:00 0 ").unwrap();
    assert!(anonymous.is_writable && !anonymous.is_readable && !anonymous.has_file);
    for line in ["", "x", "1-2", "1-2 rw-p 0 0:0", "1-g rw-p 0 0:0 0"] {
        assert_eq!(parse(line.as_bytes()), None, "{line}");
    }
}

//! Installations below a scratch directory.

use std::collections::BTreeSet;

use tempfile::TempDir;

use super::*;

const PKG_CONFIG: &str = "lib/pkgconfig/dat2.pc";

const PREFIX: &str = "/opt/dat";

/// A stage, and a directory that replaces `/`.
struct Scratch {
    dir: TempDir,
}

impl Scratch {
    fn new() -> Self {
        let scratch = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        scratch.stage(|stage| {
            stage.text("tool", "bin/tool").unwrap();
        });
        scratch
    }

    /// Stages the same libraries and samples, and the files that `more` adds.
    fn stage(&self, more: impl FnOnce(&mut Layout)) {
        let mut stage = Layout::open(self.stage_dir()).unwrap();
        stage.text("library", "lib/liba.so.2").unwrap();
        stage.link("liba.so.2", "lib/liba.so").unwrap();
        stage.text("movable", PKG_CONFIG).unwrap();
        stage.text("sample", DAT_CONF).unwrap();
        more(&mut stage);
        stage.finish().unwrap();
    }

    fn stage_dir(&self) -> PathBuf {
        self.dir.path().join("stage")
    }

    fn place(&self) -> Place {
        Place {
            prefix: PREFIX.into(),
            destdir: Some(self.dir.path().join("dest")),
        }
    }

    /// The path of the prefix during the test.
    fn root(&self) -> PathBuf {
        self.dir.path().join("dest/opt/dat")
    }

    fn install_to(&self, libdir: &str) -> Result<Installed> {
        let options = Options {
            place: self.place(),
            libdir: libdir.to_owned(),
        };
        install(&self.stage_dir(), &options)
    }

    fn install(&self) -> Result<Installed> {
        self.install_to("lib")
    }

    fn uninstall(&self) -> Result<Uninstalled> {
        uninstall(&self.place())
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap()
    }

    /// All files and links below the prefix.
    fn files(&self) -> BTreeSet<String> {
        fn walk(root: &Path, dir: &Path, found: &mut BTreeSet<String>) {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    walk(root, &entry.path(), found);
                } else {
                    let path = entry.path();
                    let path = path.strip_prefix(root).unwrap();
                    found.insert(path.to_string_lossy().into_owned());
                }
            }
        }
        let mut found = BTreeSet::new();
        walk(&self.root(), &self.root(), &mut found);
        found
    }
}

#[test]
fn all_staged_files_are_installed_and_removed() {
    let scratch = Scratch::new();
    let installed = scratch.install().unwrap();
    assert_eq!((installed.files, installed.renewed), (5, 6));
    let wanted = [
        "bin/tool",
        "lib/liba.so",
        "lib/liba.so.2",
        "lib/pkgconfig/dat2.pc",
        "share/dat-rs/dat.conf",
        "share/dat-rs/manifest",
    ];
    assert_eq!(scratch.files(), wanted.map(String::from).into());
    assert!(!installed.to_string().contains("ldconfig"), "{installed}");

    assert_eq!(scratch.uninstall().unwrap().removed, 5);
    assert_eq!(
        fs::read_dir(scratch.root()).unwrap().count(),
        0,
        "directories that were made are removed too"
    );
    let error = scratch.uninstall().unwrap_err().to_string();
    assert!(error.contains("has installed nothing below"), "{error}");
}

#[test]
fn paths_are_those_of_the_prefix_and_of_its_directory_for_libraries() {
    let scratch = Scratch::new();
    scratch.install().unwrap();
    scratch.install_to("lib64").unwrap();
    assert!(!scratch.files().iter().any(|file| file.starts_with("lib/")));
    let pc = scratch.read("lib64/pkgconfig/dat2.pc");
    assert!(
        pc.starts_with("prefix=/opt/dat\nlibdir=${prefix}/lib64\n"),
        "{pc}"
    );
    assert!(pc.contains("includedir=${prefix}/include\n"), "{pc}");
    scratch.uninstall().unwrap();
    assert_eq!(fs::read_dir(scratch.root()).unwrap().count(), 0);
}

#[test]
fn a_file_of_another_owner_is_neither_replaced_nor_removed() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.root().join("lib")).unwrap();
    fs::write(scratch.root().join("lib/liba.so.2"), "theirs").unwrap();
    let error = scratch.install().unwrap_err().to_string();
    assert!(error.starts_with("nothing was installed: "), "{error}");
    assert!(error.ends_with("lib/liba.so.2"), "{error}");
    assert_eq!(scratch.files().len(), 1);

    fs::remove_file(scratch.root().join("lib/liba.so.2")).unwrap();
    scratch.install().unwrap();
    fs::write(scratch.root().join("lib/liba.so.2"), "theirs").unwrap();
    fs::write(scratch.root().join("lib/other"), "theirs").unwrap();
    let uninstalled = scratch.uninstall().unwrap();
    assert_eq!(uninstalled.removed, 4);
    assert!(
        uninstalled
            .to_string()
            .contains("kept, because it has changed"),
        "{uninstalled}"
    );
    let left = ["lib/liba.so.2", "lib/other"];
    assert_eq!(scratch.files(), left.map(String::from).into());
}

#[test]
fn a_newer_stage_replaces_and_removes_unchanged_files() {
    let scratch = Scratch::new();
    scratch.install().unwrap();
    fs::write(scratch.stage_dir().join("bin/tool"), "changed manually").unwrap();
    let error = scratch.install().unwrap_err().to_string();
    assert!(error.contains("has changed since it was staged"), "{error}");

    scratch.stage(|stage| stage.text("new", "bin/newer").unwrap());
    assert_eq!(scratch.install().unwrap().files, 5);
    assert!(!scratch.root().join("bin/tool").exists());
    assert_eq!(scratch.read("bin/newer"), "new");

    scratch.stage(|stage| stage.text("newer", "bin/newer").unwrap());
    scratch.install().unwrap();
    assert_eq!(scratch.read("bin/newer"), "newer");
    assert_eq!(scratch.install().unwrap().renewed, 0, "no file has changed");
}

#[test]
fn a_changed_file_that_is_no_longer_staged_is_kept() {
    let scratch = Scratch::new();
    scratch.install().unwrap();
    fs::write(scratch.root().join("bin/tool"), "theirs").unwrap();
    scratch.stage(|_| ());
    let installed = scratch.install().unwrap();
    assert_eq!(installed.kept, [scratch.root().join("bin/tool")]);
    assert_eq!(scratch.read("bin/tool"), "theirs");
}

#[test]
fn modes_do_not_depend_on_who_staged() {
    let scratch = Scratch::new();
    let set = |path: &str, mode| {
        let path = scratch.stage_dir().join(path);
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    set("bin/tool", 0o700);
    set("lib/liba.so.2", 0o600);
    scratch.install().unwrap();
    let mode = |path: &str| {
        let metadata = fs::metadata(scratch.root().join(path)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode("bin/tool"), EXECUTABLE);
    for file in ["lib/liba.so.2", PKG_CONFIG, manifest::PLACE] {
        assert_eq!(mode(file), READABLE, "{file}");
    }
    assert_eq!(mode("share/dat-rs"), EXECUTABLE);
}

#[test]
fn an_invalid_prefix_is_refused() {
    let scratch = Scratch::new();
    assert!(scratch.install_to("../lib").is_err());
    let options = Options {
        place: Place {
            prefix: "relative".into(),
            destdir: None,
        },
        libdir: "lib".into(),
    };
    let error = install(&scratch.stage_dir(), &options).unwrap_err();
    assert!(
        error.to_string().contains("not an absolute path"),
        "{error}"
    );
    let nowhere = scratch.dir.path().join("nowhere");
    let options = Options {
        place: scratch.place(),
        ..options
    };
    let error = install(&nowhere, &options).unwrap_err().to_string();
    assert!(error.contains("nothing is staged"), "{error}");
}

//! Installations below a scratch directory.

use std::collections::BTreeSet;

use tempfile::TempDir;

use super::*;

const PREFIX: &str = "/opt/dat";

/// A stage, and a directory that replaces `/`.
struct Ground {
    dir: TempDir,
}

impl Ground {
    fn new() -> Self {
        let ground = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        ground.stage(|stage| {
            stage.text("tool", "bin/tool").unwrap();
        });
        ground
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
    let ground = Ground::new();
    let installed = ground.install().unwrap();
    assert_eq!((installed.files, installed.renewed), (5, 6));
    let wanted = [
        "bin/tool",
        "lib/liba.so",
        "lib/liba.so.2",
        "lib/pkgconfig/dat2.pc",
        "share/dat-rs/dat.conf",
        "share/dat-rs/manifest",
    ];
    assert_eq!(ground.files(), wanted.map(String::from).into());
    assert!(!installed.to_string().contains("ldconfig"), "{installed}");

    assert_eq!(ground.uninstall().unwrap().removed, 5);
    assert_eq!(
        fs::read_dir(ground.root()).unwrap().count(),
        0,
        "directories that were made are removed too"
    );
    let error = ground.uninstall().unwrap_err().to_string();
    assert!(error.contains("has installed nothing below"), "{error}");
}

#[test]
fn paths_are_those_of_the_prefix_and_of_its_directory_for_libraries() {
    let ground = Ground::new();
    ground.install().unwrap();
    ground.install_to("lib64").unwrap();
    assert!(!ground.files().iter().any(|file| file.starts_with("lib/")));
    let pc = ground.read("lib64/pkgconfig/dat2.pc");
    assert!(
        pc.starts_with("prefix=/opt/dat\nlibdir=${prefix}/lib64\n"),
        "{pc}"
    );
    assert!(pc.contains("includedir=${prefix}/include\n"), "{pc}");
    ground.uninstall().unwrap();
    assert_eq!(fs::read_dir(ground.root()).unwrap().count(), 0);
}

#[test]
fn a_file_of_another_owner_is_neither_replaced_nor_removed() {
    let ground = Ground::new();
    fs::create_dir_all(ground.root().join("lib")).unwrap();
    fs::write(ground.root().join("lib/liba.so.2"), "theirs").unwrap();
    let error = ground.install().unwrap_err().to_string();
    assert!(error.starts_with("nothing was installed: "), "{error}");
    assert!(error.ends_with("lib/liba.so.2"), "{error}");
    assert_eq!(ground.files().len(), 1);

    fs::remove_file(ground.root().join("lib/liba.so.2")).unwrap();
    ground.install().unwrap();
    fs::write(ground.root().join("lib/liba.so.2"), "theirs").unwrap();
    fs::write(ground.root().join("lib/other"), "theirs").unwrap();
    let uninstalled = ground.uninstall().unwrap();
    assert_eq!(uninstalled.removed, 4);
    assert!(
        uninstalled
            .to_string()
            .contains("kept, because it has changed"),
        "{uninstalled}"
    );
    let left = ["lib/liba.so.2", "lib/other"];
    assert_eq!(ground.files(), left.map(String::from).into());
}

#[test]
fn a_newer_stage_replaces_and_removes_unchanged_files() {
    let ground = Ground::new();
    ground.install().unwrap();
    fs::write(ground.stage_dir().join("bin/tool"), "changed manually").unwrap();
    let error = ground.install().unwrap_err().to_string();
    assert!(error.contains("has changed since it was staged"), "{error}");

    ground.stage(|stage| stage.text("new", "bin/newer").unwrap());
    assert_eq!(ground.install().unwrap().files, 5);
    assert!(!ground.root().join("bin/tool").exists());
    assert_eq!(ground.read("bin/newer"), "new");

    ground.stage(|stage| stage.text("newer", "bin/newer").unwrap());
    ground.install().unwrap();
    assert_eq!(ground.read("bin/newer"), "newer");
    assert_eq!(ground.install().unwrap().renewed, 0, "no file has changed");
}

#[test]
fn a_changed_file_that_is_no_longer_staged_is_kept() {
    let ground = Ground::new();
    ground.install().unwrap();
    fs::write(ground.root().join("bin/tool"), "theirs").unwrap();
    ground.stage(|_| ());
    let installed = ground.install().unwrap();
    assert_eq!(installed.kept, [ground.root().join("bin/tool")]);
    assert_eq!(ground.read("bin/tool"), "theirs");
}

#[test]
fn modes_do_not_depend_on_who_staged() {
    let ground = Ground::new();
    let set = |path: &str, mode| {
        let path = ground.stage_dir().join(path);
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    set("bin/tool", 0o700);
    set("lib/liba.so.2", 0o600);
    ground.install().unwrap();
    let mode = |path: &str| {
        let metadata = fs::metadata(ground.root().join(path)).unwrap();
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
    let ground = Ground::new();
    assert!(ground.install_to("../lib").is_err());
    let options = Options {
        place: Place {
            prefix: "relative".into(),
            destdir: None,
        },
        libdir: "lib".into(),
    };
    let error = install(&ground.stage_dir(), &options).unwrap_err();
    assert!(
        error.to_string().contains("not an absolute path"),
        "{error}"
    );
    let nowhere = ground.dir.path().join("nowhere");
    let options = Options {
        place: ground.place(),
        ..options
    };
    let error = install(&nowhere, &options).unwrap_err().to_string();
    assert!(error.contains("nothing is staged"), "{error}");
}

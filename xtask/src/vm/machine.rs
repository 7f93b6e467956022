//! One boot of the guest: QEMU, a job, and its result.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use stack_tests::{Echo, Finished, Program};
use tempfile::TempDir;

use super::FILES;
use super::initramfs::Initramfs;
use super::kernel::{Kernel, STARTING};
use crate::workspace::Workspace;

/// The number of lines of the kernel's log that are printed after the guest has died.
const LOG_LINES: usize = 25;

/// A statically linked busybox, the only program of the guest's first steps.
const BUSYBOX: &str = "/bin/busybox";

/// The devices for the output of a job. The output does not use `stdio`, because without a standard
/// input its port never opens.
const PORTS: &str = "-display none -monitor none -device virtio-serial-pci \
                     -chardev file,id=output,path=/dev/stdout \
                     -device virtserialport,chardev=output,name=output";

/// The display of the output of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// Shown on standard output as it is received.
    Shown,
    /// Returned only.
    Kept,
}

/// A program to run in the guest as root.
#[derive(Debug)]
pub(crate) struct Job {
    command: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    deadline: Duration,
}

impl Job {
    /// The program at `path`, which is the same in the guest and on the host.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            command: vec![path.into_os_string()],
            environment: Vec::new(),
            deadline: Duration::from_secs(300),
        }
    }

    /// Appends arguments.
    pub(crate) fn args(mut self, args: &[OsString]) -> Self {
        self.command.extend_from_slice(args);
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, key: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((key.into(), value.into()));
        self
    }

    /// Ends the guest after this time, which includes the boot.
    pub(crate) fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The shell script that executes the program.
    fn command_text(&self) -> Vec<u8> {
        let words: Vec<Vec<u8>> = self.command.iter().map(|word| quoted(word)).collect();
        [b"exec ".to_vec(), words.join(&b' ')].concat()
    }

    fn environment_text(&self) -> Vec<u8> {
        let lines = self.environment.iter().map(|(key, value)| {
            let assignment = format!("export {key}=").into_bytes();
            [assignment, quoted(value), b"\n".to_vec()].concat()
        });
        lines.collect::<Vec<_>>().concat()
    }
}

/// The guest before its boot.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    workspace: &'a Workspace,
    kernel: &'a Kernel,
    cpus: u32,
    memory_mib: u32,
}

impl<'a> Machine<'a> {
    /// A machine of two processors and 4 GiB.
    pub(crate) fn new(workspace: &'a Workspace, kernel: &'a Kernel) -> Self {
        Self {
            workspace,
            kernel,
            cpus: 2,
            memory_mib: 4096,
        }
    }

    /// Sets the number of processors.
    pub(crate) fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Sets the size of memory in MiB.
    pub(crate) fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// Boots, runs the job, and returns the job's output and exit status.
    ///
    /// # Errors
    /// When the guest does not complete the job: the message holds the end of the kernel's log.
    pub(crate) fn run(&self, job: &Job, output: Output) -> Result<Finished> {
        let files = scratch()?;
        let (status, log) = (files.path().join("status"), files.path().join("log"));
        let archive = self.archive(|archive| {
            archive.file("job/command", &job.command_text())?;
            archive.file("job/environment", &job.environment_text())
        })?;
        let mut qemu = Program::new("qemu-system-x86_64").named("the guest");
        for arg in self.arguments(files.path(), &archive, "loglevel=4")? {
            qemu = qemu.arg(arg);
        }
        qemu = qemu.args_line(PORTS);
        for arg in result_options(&status, &log) {
            qemu = qemu.arg(arg);
        }
        let qemu = qemu.echo_as(match output {
            Output::Shown => Echo::Plain,
            Output::Kept => Echo::None,
        });
        let finished = qemu.spawn()?.finish(job.deadline);
        let log = lossy(&log);
        let finished = finished.with_context(|| {
            format!(
                "the guest did not end in time (--timeout); its kernel's log:\n{}",
                error_lines(&log)
            )
        })?;
        match lossy(&status).trim().parse::<u8>() {
            Ok(code) => Ok(Finished {
                status: ExitStatus::from_raw(i32::from(code) << 8),
                ..finished
            }),
            Err(_) => bail!(
                "the guest died before the job ended (QEMU: {}); it printed\n{}\n\
                 its kernel's log:\n{}",
                finished.status,
                finished.tail(),
                error_lines(&log)
            ),
        }
    }

    /// Boots with a shell: on the terminal, or one that reads standard input. Returns the shell's
    /// exit status; that of a terminal is always 0.
    ///
    /// # Errors
    /// When the guest does not complete the shell.
    pub(crate) fn shell(&self) -> Result<u8> {
        if io::stdin().is_terminal() {
            self.shell_on_terminal().map(|()| 0)
        } else {
            self.shell_on_input()
        }
    }

    fn shell_on_terminal(&self) -> Result<()> {
        let files = scratch()?;
        let archive = self.archive(|archive| {
            archive.file("job/shell", b"")?;
            archive.file("job/command", b"exec bash -i")?;
            archive.file("job/environment", b"")
        })?;
        let status = Command::new("qemu-system-x86_64")
            .args(self.arguments(files.path(), &archive, "quiet")?)
            .args(["-display", "none", "-serial", "mon:stdio"])
            .args(["-device", "virtio-serial-pci"])
            .args(["-chardev", "null,id=status"])
            .args(["-device", "virtserialport,chardev=status,name=status"])
            .status()
            .context("starting qemu-system-x86_64")?;
        ensure!(status.success(), "QEMU: {status}");
        Ok(())
    }

    /// Boots with a shell that reads standard input through a virtio port. A serial line would lose
    /// bytes that are sent before the guest reads, and would not report the end of the input.
    fn shell_on_input(&self) -> Result<u8> {
        let files = scratch()?;
        let (status, log) = (files.path().join("status"), files.path().join("log"));
        let archive = self.archive(|archive| {
            archive.file("job/command", b"exec bash -s")?;
            archive.file("job/environment", b"")
        })?;
        let qemu = Command::new("qemu-system-x86_64")
            .args(self.arguments(files.path(), &archive, "loglevel=4")?)
            .args(PORTS.split_whitespace())
            .args(["-chardev", "stdio,id=input,signal=off"])
            .args(["-device", "virtserialport,chardev=input,name=input"])
            .args(result_options(&status, &log))
            .status()
            .context("starting qemu-system-x86_64")?;
        lossy(&status).trim().parse().with_context(|| {
            let log = lossy(&log);
            format!(
                "the guest crashed (QEMU: {qemu}); its kernel's log:\n{}",
                error_lines(&log)
            )
        })
    }

    /// The QEMU arguments that every boot uses.
    fn arguments(&self, files: &Path, archive: &[u8], words: &str) -> Result<Vec<OsString>> {
        let initrd = files.join("initrd");
        fs::write(&initrd, archive).with_context(|| format!("writing {}", initrd.display()))?;
        // After an oops the kernel panics, because later results would prove nothing. On a busy
        // machine an emulated timer may be late, and without no_timer_check the kernel would then
        // not start.
        let append = format!("console=ttyS0 panic=-1 oops=panic no_timer_check {words}");
        let line = format!(
            "-nodefaults -no-user-config -no-reboot -nic none -accel tcg,thread=multi -cpu max \
             -smp {} -m {} \
             -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
            self.cpus, self.memory_mib
        );
        let mut arguments: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
        arguments.extend(["-kernel".into(), self.kernel.image().into_os_string()]);
        arguments.extend(["-initrd".into(), initrd.into_os_string()]);
        arguments.extend(["-append".into(), append.into()]);
        Ok(arguments)
    }

    /// The archive with which the kernel starts: busybox, the modules that give access to the
    /// host's files, the job.
    fn archive(&self, job: impl FnOnce(&mut Initramfs) -> Result<()>) -> Result<Vec<u8>> {
        let own = self.workspace.root().join(FILES);
        let mut archive = Initramfs::default();
        let directories = [
            "bin", "dev", "job", "lower", "modules", "new", "proc", "sys", "upper",
        ];
        for directory in directories {
            archive.directory(directory)?;
        }
        archive.file("bin/busybox", &read(Path::new(BUSYBOX))?)?;
        archive.file("init", &read(&own.join("init"))?)?;
        archive.file("job/enter", &read(&own.join("enter"))?)?;
        let here = std::env::current_dir().context("reading the current directory")?;
        archive.file("job/directory", here.as_os_str().as_bytes())?;
        archive.file("job/kernel", &self.kernel_text())?;
        self.add_modules(&mut archive)?;
        job(&mut archive)?;
        archive.finish()
    }

    fn kernel_text(&self) -> Vec<u8> {
        let release = format!("KERNEL_RELEASE={}\nKERNEL_MODULES=", self.kernel.release());
        let modules = quoted(self.kernel.modules().as_os_str());
        [release.into_bytes(), modules, b"\n".to_vec()].concat()
    }

    fn add_modules(&self, archive: &mut Initramfs) -> Result<()> {
        let mut order: Vec<String> = Vec::new();
        for module in STARTING {
            for file in self.kernel.files_of(self.workspace, module)? {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                let name = name.trim_end_matches(".xz").to_owned();
                if !order.contains(&name) {
                    archive.file(format!("modules/{name}"), &self.plain(&file)?)?;
                    order.push(name);
                }
            }
        }
        let order: String = order.iter().map(|name| format!("{name}\n")).collect();
        archive.file("modules/order", order.as_bytes())
    }

    /// The uncompressed content of a module, because busybox loads no compressed one.
    fn plain(&self, file: &Path) -> Result<Vec<u8>> {
        if file.extension() != Some(OsStr::new("xz")) {
            return read(file);
        }
        let output = Command::new("xz")
            .args(["--decompress", "--stdout"])
            .arg(file)
            .output()
            .context("starting xz")?;
        ensure!(
            output.status.success(),
            "xz cannot unpack {}",
            file.display()
        );
        Ok(output.stdout)
    }
}

fn scratch() -> Result<TempDir> {
    tempfile::tempdir().context("making a scratch directory")
}

/// The options that write the exit status and the kernel's log to files.
fn result_options(status: &Path, log: &Path) -> [OsString; 6] {
    [
        "-chardev".into(),
        with_path("file,id=status,path=", status),
        "-device".into(),
        "virtserialport,chardev=status,name=status".into(),
        "-serial".into(),
        with_path("file:", log),
    ]
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("reading {}", file.display()))
}

/// The content of a file; empty if the guest has not written it.
fn lossy(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}

/// The most useful lines of a kernel's log: from its first error on, or the last lines.
fn error_lines(log: &str) -> String {
    const COMPLAINTS: [&str; 4] = ["BUG: ", "Oops", "general protection", "Kernel panic"];
    let lines: Vec<&str> = log.lines().collect();
    let complains = |line: &&str| COMPLAINTS.iter().any(|words| line.contains(words));
    let last = lines.len().saturating_sub(LOG_LINES);
    let first = lines.iter().position(complains).unwrap_or(last);
    let shown = lines.iter().skip(first).take(LOG_LINES);
    shown.copied().collect::<Vec<_>>().join("\n")
}

/// A QEMU option that ends in a path, whose commas are doubled.
fn with_path(option: &str, path: &Path) -> OsString {
    let doubled = path.as_os_str().as_bytes().iter().flat_map(|&byte| {
        let times = if byte == b',' { 2 } else { 1 };
        std::iter::repeat_n(byte, times)
    });
    let bytes = option.bytes().chain(doubled).collect::<Vec<u8>>();
    OsStr::from_bytes(&bytes).to_owned()
}

/// A word quoted for the shell, whatever it contains.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut text = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend(br"'\''"),
            _ => text.push(byte),
        }
    }
    text.push(b'\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_quoted_for_the_shell() {
        let job = Job::new("/a b/program".into())
            .args(&["it's".into(), "$HOME".into()])
            .env("KEY", "a value");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert_eq!(
            text(job.command_text()),
            r"exec '/a b/program' 'it'\''s' '$HOME'"
        );
        assert_eq!(text(job.environment_text()), "export KEY='a value'\n");
    }

    #[test]
    fn a_comma_does_not_end_a_path() {
        let option = with_path("file:", Path::new("/a,b"));
        assert_eq!(option, OsString::from("file:/a,,b"));
    }

    #[test]
    fn a_log_is_shown_from_its_first_error_or_at_its_end() {
        let log: String = (0..100).map(|line| format!("{line}\n")).collect();
        assert!(error_lines(&log).starts_with("75\n"));
        assert_eq!(error_lines("short"), "short");
        let died = log.replace("\n50\n", "\nBUG: kernel NULL pointer dereference\n");
        let shown = error_lines(&died);
        assert!(
            shown.starts_with("BUG: ") && shown.ends_with("\n74"),
            "{shown}"
        );
    }
}

//! Programs that pass or relay sockets, or have a runtime of their own.
//!
//! Most are echo servers with the same clients: fifty at once, which compare each byte and close
//! the connection first.

use std::fs;
use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, ensure};
use stack_tests::{OffloadProtocol, Running};

use crate::arrangement::Side;
use crate::case::Case;
use crate::fetched::Package;
use crate::python::{INTERPRETER, script};
use crate::scene::{HOST, Scene};

/// A case that needs programs which other suites do not need.
pub(crate) struct Extra {
    pub(crate) case: Case,
    /// Files without which the case is not run.
    needs: &'static [&'static str],
    /// A package without which the case is not run, and which is installed where that is possible.
    package: Option<&'static Package>,
    /// True for cases that run in full runs only: their packages are large, or start services on
    /// the machine, or their start takes seconds.
    pub(crate) is_heavy: bool,
    /// True if the tested protocols include SDP.
    has_sdp: bool,
}

const CLIENTS: &str = include_str!("echo_clients.py");

pub(crate) const EXTRAS: &[Extra] = &[
    extra(
        "vsftpd: default configuration, anonymous users",
        2121,
        ftp_server,
        fetch_by_ftp,
    )
    .needs(&["/usr/sbin/vsftpd"])
    .also_by_sdp(),
    extra(
        "haproxy: TCP by splice, SO_REUSEPORT",
        8090,
        |scene| proxy(scene, ""),
        fetch_by_proxy,
    )
    .needs(&["/usr/sbin/haproxy"])
    .also_by_sdp(),
    extra(
        "haproxy: TCP by splice, noreuseport",
        8090,
        |scene| proxy(scene, "global\n noreuseport\n"),
        fetch_by_proxy,
    )
    .needs(&["/usr/sbin/haproxy"])
    .also_by_sdp(),
    echo::<7777>("inetd: cat", inetd)
        .needs(&["/usr/sbin/inetd"])
        .also_by_sdp(),
    echo::<7778>("systemd-socket-activate: Python", activated)
        .needs(&["/usr/bin/systemd-socket-activate"])
        .also_by_sdp(),
    echo::<7779>("exec: Python listens, its successor accepts", successor).also_by_sdp(),
    echo::<7780>("Node: echo server", |scene| {
        let text = format!(
            "require('net').createServer({{allowHalfOpen: true}}, s => s.pipe(s))\
             .listen(7780, '{HOST}')"
        );
        scene.server("node").arg("-e").arg(text).spawn()
    })
    .needs(&["/usr/bin/node"])
    .heavy()
    .also_by_sdp(),
    echo::<7781>("Java: echo server", |scene| {
        fs::write(scene.path("Echo.java"), include_str!("Echo.java"))?;
        scene.server("java").args_line("Echo.java 7781").spawn()
    })
    .needs(&["/usr/bin/java", "/usr/bin/javac"])
    .heavy()
    .also_by_sdp(),
    echo::<7782>("Erlang: echo server", |scene| {
        fs::write(scene.path("echo.escript"), include_str!("echo.escript"))?;
        let server = scene.server("escript");
        server.args_line("echo.escript 7782").spawn()
    })
    .needs(&["/usr/bin/escript"])
    .heavy()
    .also_by_sdp(),
    echo::<7783>(
        "Go: echo server, which makes its system calls itself",
        |scene| {
            fs::write(scene.path("echo.go"), include_str!("echo.go"))?;
            let build = scene.shell(Side::Plain, "HOME=$PWD CGO_ENABLED=0 go build echo.go");
            scene.run(build)?;
            scene.server(scene.path("echo")).arg("7783").spawn()
        },
    )
    .needs(&["/usr/bin/go"])
    .heavy(),
    extra("MariaDB: rows of 100 KB", 3306, mariadb, query)
        .needs(&["/usr/sbin/mariadbd", "/usr/bin/mariadb"])
        .heavy()
        .also_by_sdp(),
];

pub(crate) const fn extra(
    name: &'static str,
    port: u16,
    start: fn(&Scene) -> Result<Running>,
    run_clients: fn(&Scene, Side) -> Result<()>,
) -> Extra {
    Extra {
        case: Case::new(name, port, start, run_clients),
        needs: &[],
        package: None,
        is_heavy: false,
        has_sdp: false,
    }
}

pub(crate) const fn echo<const PORT: u16>(
    name: &'static str,
    start: fn(&Scene) -> Result<Running>,
) -> Extra {
    extra(name, PORT, start, run_clients::<PORT>)
}

impl Extra {
    pub(crate) const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    pub(crate) const fn of(self, package: &'static Package) -> Self {
        Self {
            package: Some(package),
            ..self
        }
    }

    /// Permits that connections which both sides may offload use TCP; the run reports their number.
    pub(crate) const fn or_over_tcp(mut self) -> Self {
        self.case.may_use_tcp = true;
        self
    }

    /// For servers whose listeners are not offered to peers when their clients connect.
    pub(crate) const fn not_offered(mut self) -> Self {
        self.case.is_offered = false;
        self
    }

    pub(crate) const fn heavy(self) -> Self {
        Self {
            is_heavy: true,
            ..self
        }
    }

    pub(crate) const fn also_by_sdp(self) -> Self {
        Self {
            has_sdp: true,
            ..self
        }
    }

    /// Returns true for a protocol with which the case is tested.
    pub(crate) fn is_for(&self, protocol: &OffloadProtocol) -> bool {
        self.has_sdp || !protocol.is_sdp
    }

    /// The first file or package that is missing.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let is_missing = |file: &&&str| !Path::new(file).exists();
        let file = self.needs.iter().find(is_missing).copied();
        let package = || self.package.filter(|package| !package.provide());
        file.or_else(|| package().map(Package::name))
    }
}

/// The clients of an echo server.
fn run_clients<const PORT: u16>(scene: &Scene, side: Side) -> Result<()> {
    let clients = script(scene.program(side, INTERPRETER), CLIENTS);
    let turns = if scene.is_long() { 50 } else { 3 };
    let finished = scene.run(clients.args_line(&format!("{HOST} {PORT} {turns}")))?;
    finished.prints("done").map(drop)
}

fn ftp_server(scene: &Scene) -> Result<Running> {
    for dir in ["ftp", "empty"] {
        fs::create_dir(scene.path(dir))?;
        fs::set_permissions(scene.path(dir), fs::Permissions::from_mode(0o555))?;
    }
    scene.file("ftp/file", 3_000_001)?;
    // The port, and settings that the package does not set.
    let options = format!(
        "-olisten_port=2121 -oanonymous_enable=YES -oanon_root={0}/ftp \
         -osecure_chroot_dir={0}/empty",
        scene.dir().display()
    );
    let server = scene.server("/usr/sbin/vsftpd").arg("/etc/vsftpd.conf");
    server.args_line(&options).spawn()
}

fn fetch_by_ftp(scene: &Scene, side: Side) -> Result<()> {
    let get = format!("curl -sSf ftp://{HOST}:2121/file | cmp - ftp/file");
    scene.run(scene.shell(side, &get))?;
    let list = format!("-sSf --list-only ftp://{HOST}:2121/");
    let finished = scene.run(scene.program(side, "curl").args_line(&list))?;
    ensure!(finished.text.trim() == "file", "{}", finished.tail());
    Ok(())
}

fn proxy(scene: &Scene, global: &str) -> Result<Running> {
    fs::create_dir(scene.path("www"))?;
    scene.file("www/file", 20_000_001)?;
    let settings = format!(
        "{global}defaults\n mode tcp\n option splice-auto\n option splice-request\n \
         option splice-response\n timeout connect 20s\n timeout client 60s\n timeout server 60s\n\
         listen proxy\n bind {HOST}:8090\n server store {HOST}:8092\n"
    );
    fs::write(scene.path("haproxy.cfg"), settings)?;
    let both = format!(
        "{INTERPRETER} -m http.server --bind {HOST} --directory www 8092 & store=$!\n\
         until curl -s -o /dev/null {HOST}:8092/; do sleep 0.1; done\n\
         /usr/sbin/haproxy -db -f haproxy.cfg & proxy=$!\n\
         trap 'kill $proxy $store' TERM\n\
         wait $proxy || true; wait $store || true"
    );
    scene.shell(scene.side(), &both).spawn()
}

fn fetch_by_proxy(scene: &Scene, side: Side) -> Result<()> {
    let url = format!("http://{HOST}:8090/file");
    let get = format!("for turn in 1 2 3; do curl -sSf {url} | cmp - www/file; done");
    scene.run(scene.shell(side, &get)).map(drop)
}

fn inetd(scene: &Scene) -> Result<Running> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())?;
    let user = user.map_or_else(|| "root".to_owned(), |user| user.name);
    let line = format!("{HOST}:7777 stream tcp nowait {user} /bin/cat cat\n");
    fs::write(scene.path("inetd.conf"), line)?;
    let server = scene.server("/usr/sbin/inetd").args_line("-i");
    server.arg(scene.path("inetd.conf")).spawn()
}

/// A program that accepts on an inherited listener. Its argument is the descriptor number.
const ACCEPTS: &str = include_str!("accepts.py");

/// Starts the program as systemd starts a service: the listener is made by a program that does not
/// run under `opsrun`, and the first client, over TCP, starts the server.
fn activated(scene: &Scene) -> Result<Running> {
    // The program receives no other variable.
    let kept = ["OPS_RULES", "DAT_OVERRIDE", "OPS_SOFTWARE", "SDP_TRACE"];
    let kept = kept.map(|name| format!("${{{name}+-E {name}}}")).join(" ");
    fs::write(scene.path("accepts.py"), ACCEPTS)?;
    let script = format!(
        "library=${{LD_PRELOAD-}}; unset LD_PRELOAD\n\
         exec systemd-socket-activate {kept} -E LD_PRELOAD=$library -l {HOST}:7778 \
         {INTERPRETER} accepts.py 3"
    );
    let server = scene.shell(scene.side(), &script).spawn()?;
    let limit = scene.deadline();
    scene.net.wait_for_listener_of(&server, 7778, limit)?;
    let mut first = TcpStream::connect((HOST, 7778))?;
    first.set_read_timeout(Some(limit))?;
    first.shutdown(Shutdown::Write)?;
    ensure!(first.read(&mut [0])? == 0, "bytes were received");
    Ok(server)
}

const LISTENS: &str = "import os, socket, sys\n\
    listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=64)\n\
    listener.set_inheritable(True)\n\
    os.execv(sys.executable, [sys.executable, '-c', sys.argv[3], str(listener.fileno())])";

fn successor(scene: &Scene) -> Result<Running> {
    let server = script(scene.server(INTERPRETER), LISTENS);
    server
        .args_line(&format!("{HOST} 7779"))
        .arg(ACCEPTS)
        .spawn()
}

fn mariadb(scene: &Scene) -> Result<Running> {
    let data = scene.path("data").display().to_string();
    fs::create_dir(&data)?;
    // Without grants, the server needs none of the tables that an installation makes.
    let line = format!(
        "--no-defaults --datadir={data} --socket={data}/socket --bind-address={HOST} --port=3306 \
         --skip-grant-tables --innodb-buffer-pool-size=16M --innodb-use-native-aio=0 --user=root"
    );
    scene.server("/usr/sbin/mariadbd").args_line(&line).spawn()
}

fn query(scene: &Scene, side: Side) -> Result<()> {
    let ask = |query: &str| {
        let client = scene.program(side, "mariadb");
        let line = format!("--no-defaults -h {HOST} -P 3306 --protocol=tcp -N -B -e");
        scene.run(client.args_line(&line).arg(query))
    };
    let table = "create or replace table d.t (id int primary key, v longtext) engine=innodb;";
    let rows = "insert into d.t select seq, repeat(seq, 20000) from d.s;";
    let numbers = "create or replace database d; create or replace table d.s (seq int); \
                   insert into d.s values \
                   (10001),(10002),(10003),(10004),(10005),(10006),(10007),(10008);";
    ask(&format!("{numbers} {table} {rows}"))?;
    let finished = ask("select v from d.t order by id")?;
    let expected: String = (10001..=10008)
        .map(|number: u32| number.to_string().repeat(20_000) + "\n")
        .collect();
    ensure!(
        finished.text == expected,
        "a wrong result of {} bytes",
        finished.text.len()
    );
    Ok(())
}

//! Servers that start their workers themselves, in sandboxes or with environments of their own, and
//! relays that end connections in one direction first.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Result, ensure};
use stack_tests::{Program, Running};

use crate::arrangement::Side;
use crate::more::{Extra, echo, extra};
use crate::python::INTERPRETER;
use crate::scene::{HOST, Scene};

pub(crate) const DAEMONS: &[Extra] = &[
    extra(
        "stunnel: downloads over TLS",
        8443,
        tls_relay,
        |scene, side| download(scene, side, &format!("-k https://{HOST}:8443/file")),
    )
    .needs(&["/usr/bin/stunnel4"])
    .also_by_sdp(),
    extra("pen: balances one server", 8094, balancer, |scene, side| {
        download(scene, side, &format!("http://{HOST}:8094/file"))
    })
    .needs(&["/usr/bin/pen"])
    .also_by_sdp(),
    extra("Varnish: a cache of 20 MB", 8095, cache, |scene, side| {
        download(scene, side, &format!("http://{HOST}:8095/file"))
    })
    .needs(&["/usr/sbin/varnishd"])
    .not_offered()
    .heavy()
    .also_by_sdp(),
    extra("squid: a cache of 20 MB", 8096, squid, |scene, side| {
        download(scene, side, &format!("http://{HOST}:8096/file"))
    })
    .needs(&["/usr/sbin/squid"])
    .not_offered()
    .heavy()
    .also_by_sdp(),
    extra("sshd: commands of ssh", 2222, sshd, ssh)
        .needs(&["/usr/sbin/sshd", "/usr/bin/ssh"])
        .heavy()
        .also_by_sdp(),
    extra("dovecot: IMAP", 1143, dovecot, imap)
        .needs(&["/usr/sbin/dovecot"])
        .not_offered()
        .heavy()
        .also_by_sdp(),
    echo::<7784>("PHP: a listener of socket_import_stream", |scene| {
        fs::write(scene.path("imported.php"), include_str!("imported.php"))?;
        let server = scene.server("php");
        server
            .args_line(&format!("imported.php {HOST} 7784"))
            .spawn()
    })
    .needs(&["/usr/bin/php"])
    .also_by_sdp(),
];

/// The port of the web server behind a relay.
const STORE: u16 = 8092;

/// Starts a web server, and a relay before it. Both are of the server's side.
fn relay(scene: &Scene, command: &str) -> Result<Running> {
    fs::create_dir(scene.path("www"))?;
    scene.file("www/file", 20_000_001)?;
    let both = format!(
        "{INTERPRETER} -m http.server --bind {HOST} --directory www {STORE} & store=$!\n\
         until curl -s -o /dev/null {HOST}:{STORE}/; do sleep 0.1; done\n\
         {command} & relay=$!\n\
         trap 'kill $relay $store' TERM\n\
         wait $relay || true; wait $store || true"
    );
    scene.shell(scene.side(), &both).spawn()
}

/// Downloads a file several times; the relay closes the connection after each.
fn download(scene: &Scene, side: Side, arguments: &str) -> Result<()> {
    let get = format!("for turn in 1 2 3 4 5 6; do curl -sSf {arguments} | cmp - www/file; done");
    scene.run(scene.shell(side, &get)).map(drop)
}

fn tls_relay(scene: &Scene) -> Result<Running> {
    let make = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=relay -days 2 \
                -keyout key.pem -out cert.pem 2>openssl.log";
    scene.run(scene.shell(Side::Plain, make))?;
    let settings = format!(
        "foreground = yes\npid =\n[relay]\naccept = {HOST}:8443\nconnect = {HOST}:{STORE}\n\
         cert = cert.pem\nkey = key.pem\n"
    );
    fs::write(scene.path("stunnel.conf"), settings)?;
    relay(scene, "stunnel4 stunnel.conf")
}

fn balancer(scene: &Scene) -> Result<Running> {
    relay(scene, &format!("pen -f {HOST}:8094 {HOST}:{STORE}"))
}

fn cache(scene: &Scene) -> Result<Running> {
    let command = format!(
        "/usr/sbin/varnishd -F -j none -n $PWD/varnish -s malloc,64m \
         -a {HOST}:8095 -b {HOST}:{STORE}"
    );
    relay(scene, &command)
}

fn squid(scene: &Scene) -> Result<Running> {
    let settings = format!(
        "http_port {HOST}:8096 accel defaultsite={HOST}\n\
         cache_peer {HOST} parent {STORE} 0 no-query originserver\n\
         http_access allow all\ncache_mem 64 MB\nmaximum_object_size_in_memory 32 MB\n\
         pid_filename none\naccess_log none\ncache_log /dev/stderr\nnetdb_filename none\n\
         pinger_enable off\nshutdown_lifetime 0 seconds\n"
    );
    fs::write(scene.path("squid.conf"), settings)?;
    let server = relay(scene, "/usr/sbin/squid -N -f squid.conf")?;
    // Until the server has connected to the web server once, it answers with an error.
    let ready = format!("until curl -sf -o answer {HOST}:8096/; do sleep 0.1; done");
    scene.run(scene.shell(Side::Plain, &ready))?;
    Ok(server)
}

fn sshd(scene: &Scene) -> Result<Running> {
    let keys = "ssh-keygen -q -t ed25519 -N '' -f host_key; ssh-keygen -q -t ed25519 -N '' -f key; \
                cp key.pub authorized_keys; mkdir -p /run/sshd";
    scene.run(scene.shell(Side::Plain, keys))?;
    let dir = scene.dir().display();
    let options = format!(
        "-D -e -f /dev/null -p 2222 -h {dir}/host_key -o ListenAddress={HOST} -o StrictModes=no \
         -o PidFile=none -o AuthorizedKeysFile={dir}/authorized_keys \
         -o PermitRootLogin=prohibit-password"
    );
    // The server executes itself for each connection, by its absolute path.
    scene.server("/usr/sbin/sshd").args_line(&options).spawn()
}

fn ssh(scene: &Scene, side: Side) -> Result<()> {
    scene.file("sent", 3_000_001)?;
    let copy = format!(
        "ssh -F /dev/null -p 2222 -i key -o BatchMode=yes -o StrictHostKeyChecking=no \
         -o UserKnownHostsFile=/dev/null {HOST} cat <sent | cmp - sent"
    );
    scene.run(scene.shell(side, &copy)).map(drop)
}

/// A server whose parent process keeps the listeners and starts the processes that accept without
/// the environment.
fn dovecot(scene: &Scene) -> Result<Running> {
    fs::create_dir(scene.path("run"))?;
    fs::create_dir(scene.path("mail"))?;
    // The server's processes change to users of the package.
    for dir in ["run", "mail"] {
        fs::set_permissions(scene.path(dir), fs::Permissions::from_mode(0o777))?;
    }
    let dir = scene.dir().display();
    let settings = format!(
        "protocols = imap\nssl = no\ndisable_plaintext_auth = no\nlisten = {HOST}\n\
         base_dir = {dir}/run\nlog_path = /dev/stderr\nmail_location = maildir:{dir}/mail\n\
         mail_uid = dovenull\nmail_gid = dovenull\nfirst_valid_uid = 1\n\
         passdb {{\n driver = static\n args = password=secret\n}}\n\
         userdb {{\n driver = static\n args = uid=dovenull gid=dovenull home={dir}/mail\n}}\n\
         service imap-login {{\n inet_listener imap {{\n port = 1143\n }}\n \
         inet_listener imaps {{\n port = 0\n }}\n}}\n"
    );
    fs::write(scene.path("dovecot.conf"), settings)?;
    let server = scene.server("/usr/sbin/dovecot");
    server
        .args_line("-F -c")
        .arg(scene.path("dovecot.conf"))
        .spawn()
}

fn imap(scene: &Scene, side: Side) -> Result<()> {
    let text = "Subject: test\r\n\r\n".to_owned() + &"a line of a mail\r\n".repeat(20_000);
    fs::write(scene.path("letter"), text)?;
    let url = format!("imap://{HOST}:1143/INBOX");
    let curl = |arguments: &str| -> Program {
        let script = format!("curl -sSf -u user:secret {arguments}");
        scene.shell(side, &script)
    };
    scene.run(curl(&format!("-T letter {url}")))?;
    let get = format!("'{url};MAILINDEX=*' | cmp - letter");
    let finished = scene.run(curl(&get))?;
    ensure!(finished.text.is_empty(), "{}", finished.tail());
    Ok(())
}

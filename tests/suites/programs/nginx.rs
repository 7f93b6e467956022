//! nginx: a master and two workers that accept on the master's listener.

use std::fs;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use stack_tests::Running;

use crate::arrangement::Side;
use crate::case::Case;
use crate::scene::{HOST, Scene};

const PORT: u16 = 8080;

/// Workers that share the master's listener, workers with a listener each, and a single process.
pub(crate) const CASES: &[Case] = &[
    Case::new(
        "nginx: 2 workers",
        PORT,
        |scene| start(scene, "worker_processes 2;", ""),
        run_clients,
    )
    .ended_by(Signal::SIGQUIT),
    Case::new(
        "nginx: 2 workers, reuseport",
        PORT,
        |scene| start(scene, "worker_processes 2;", "reuseport"),
        run_clients,
    )
    .ended_by(Signal::SIGQUIT),
    Case::new(
        "nginx: one process",
        PORT,
        |scene| start(scene, "master_process off;", ""),
        run_clients,
    )
    .ended_by(Signal::SIGQUIT),
];

/// The length of the file that is sent by `sendfile`.
fn big(scene: &Scene) -> usize {
    if scene.is_long() { 1 << 30 } else { 64 << 20 }
}

fn start(scene: &Scene, processes: &str, listen: &str) -> Result<Running> {
    let www = scene.path("www");
    fs::create_dir(&www)?;
    scene.file("www/small", 1_000)?;
    scene.file("www/big", big(scene))?;
    let user = if nix::unistd::geteuid().is_root() {
        "user root;"
    } else {
        ""
    };
    let config = format!(
        "daemon off; {processes} {user} pid nginx.pid; error_log stderr notice;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n\
           access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000;\n\
           client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3;\n\
           uwsgi_temp_path t4; scgi_temp_path t5;\n\
           server {{ listen {HOST}:{PORT} {listen}; root www; }}\n\
         }}\n"
    );
    fs::write(scene.path("nginx.conf"), config)?;
    let nginx = scene.server("/usr/sbin/nginx");
    nginx
        .args_line("-e stderr -c nginx.conf -p")
        .arg(scene.dir())
        .spawn()
}

fn run_clients(scene: &Scene, side: Side) -> Result<()> {
    let url = format!("http://{HOST}:{PORT}");
    scene.run(scene.shell(side, &format!("curl -sSf {url}/big | cmp - www/big")))?;

    // The second request finds the first one's connection open.
    let twice = format!("-sSf -o one -o two -w %{{num_connects}}; {url}/small {url}/small");
    let finished = scene.run(scene.program(side, "curl").args_line(&twice))?;
    ensure!(finished.text == "1;0;");
    scene.run(scene.shell(side, "cmp one www/small; cmp two www/small"))?;

    let seconds = if scene.is_long() { 20 } else { 1 };
    let wrk = format!("-t 2 -c 16 -d {seconds}s {url}/small");
    let finished = scene
        .run(scene.program(side, "wrk").args_line(&wrk))?
        .prints("Requests/sec")?
        .never_prints("Socket errors")?
        .never_prints("Non-2xx")?;
    let rate = finished
        .text
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"));
    let rate: f64 = rate.unwrap_or_default().trim().parse()?;
    ensure!(rate > 0.0, "{}", finished.tail());
    Ok(())
}

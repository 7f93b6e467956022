//! curl: uploads and downloads, one after the other and concurrently, on connections that stay
//! open.

use anyhow::{Result, ensure};

use crate::arrangement::Side;
use crate::case::Case;
use crate::python::{INTERPRETER, script};
use crate::scene::{HOST, Scene};

const PORT: u16 = 8081;

const SERVER: &str = include_str!("store.py");

pub(crate) const CASES: &[Case] = &[Case::new(
    "curl: uploads and downloads",
    PORT,
    |scene| {
        let server = script(scene.server(INTERPRETER), SERVER);
        server.args_line(&format!("{HOST} {PORT}")).spawn()
    },
    run_clients,
)];

fn run_clients(scene: &Scene, side: Side) -> Result<()> {
    scene.file("upload", if scene.is_long() { 256 << 20 } else { 16 << 20 })?;
    let url = format!("http://{HOST}:{PORT}");
    let upload = format!("-sSf -T upload {url}/upload");
    scene.run(scene.program(side, "curl").args_line(&upload))?;
    scene.run(scene.shell(side, &format!("curl -sSf {url}/upload | cmp - upload")))?;

    // curl sends the body only after the server has asked for it.
    let expect = format!("-sSf -H Expect:100-continue -T upload {url}/again");
    scene.run(scene.program(side, "curl").args_line(&expect))?;
    let parallel =
        format!("-sSf --parallel --parallel-immediate --parallel-max 8 -o p#1 {url}/upload?[1-8]");
    scene.run(scene.program(side, "curl").args_line(&parallel))?;
    for number in 1..=8 {
        scene.run(scene.shell(side, &format!("cmp p{number} upload; rm p{number}")))?;
    }
    let missing = scene
        .program(side, "curl")
        .args_line(&format!("-sSf {url}/nothing"));
    let finished = missing.spawn()?.finish(scene.deadline())?;
    ensure!(
        finished.status.code() == Some(22),
        "{}: {}",
        finished.status,
        finished.tail()
    );
    Ok(())
}

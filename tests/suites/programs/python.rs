//! Python: its own HTTP server, and an event loop.

use std::fs;

use anyhow::{Result, ensure};
use stack_tests::Program;

use crate::arrangement::Side;
use crate::case::Case;
use crate::scene::{HOST, Scene};

/// Debian's interpreter, and not one that precedes it on `PATH`.
pub(crate) const INTERPRETER: &str = "/usr/bin/python3";

const HTTP_PORT: u16 = 8000;
const ECHO_PORT: u16 = 8007;

const ECHO_SERVER: &str = include_str!("echo_server.py");
const ECHO_CLIENTS: &str = include_str!("echo_clients.py");

/// A server with a thread per connection, and a server with one thread.
pub(crate) const CASES: &[Case] = &[
    Case::new(
        "Python: http.server",
        HTTP_PORT,
        |scene| {
            fs::create_dir(scene.path("www"))?;
            scene.file("www/file", 3_000_001)?;
            let server = scene.server(INTERPRETER);
            let words = format!("-m http.server --bind {HOST} --directory www {HTTP_PORT}");
            server.args_line(&words).spawn()
        },
        fetch,
    ),
    Case::new(
        "Python: asyncio echo server",
        ECHO_PORT,
        |scene| {
            let server = script(scene.server(INTERPRETER), ECHO_SERVER);
            server.args_line(&format!("{HOST} {ECHO_PORT}")).spawn()
        },
        |scene, side| {
            let clients = script(scene.program(side, INTERPRETER), ECHO_CLIENTS);
            let turns = if scene.is_long() { 2_000 } else { 20 };
            scene
                .run(clients.args_line(&format!("{HOST} {ECHO_PORT} {turns}")))?
                .prints("done")
                .map(drop)
        },
    ),
];

/// An interpreter with a script; arguments may follow.
pub(crate) fn script(interpreter: Program, text: &str) -> Program {
    interpreter.arg("-c").arg(text)
}

/// Python's own client, and curl.
fn fetch(scene: &Scene, side: Side) -> Result<()> {
    let url = format!("http://{HOST}:{HTTP_PORT}/file");
    let fetching = "import sys, urllib.request\n\
                    expected = open('www/file', 'rb').read()\n\
                    for turn in range(int(sys.argv[2])):\n    \
                    assert urllib.request.urlopen(sys.argv[1]).read() == expected\n\
                    print('done')";
    let turns = if scene.is_long() { 500 } else { 10 };
    let python = script(scene.program(side, INTERPRETER), fetching);
    let finished = scene.run(python.args_line(&format!("{url} {turns}")))?;
    ensure!(finished.text == "done\n", "{}", finished.tail());
    scene
        .run(scene.shell(side, &format!("curl -sSf {url} | cmp - www/file")))
        .map(drop)
}

//! memcached: threads that share their connections' descriptors.

use crate::case::Case;
use crate::python::script;
use crate::scene::HOST;

const PORT: u16 = 11211;

const CLIENT: &str = include_str!("memcached.py");

pub(crate) const CASES: &[Case] = &[Case::new(
    "memcached: values up to 900 KB by 4 threads",
    PORT,
    |scene| {
        let user = if nix::unistd::geteuid().is_root() {
            "-u root"
        } else {
            ""
        };
        let memcached = scene.server("memcached");
        memcached
            .args_line(&format!("-l {HOST} -p {PORT} -U 0 -t 4 -m 64 {user}"))
            .spawn()
    },
    |scene, side| {
        let client = script(scene.program(side, super::python::INTERPRETER), CLIENT);
        scene
            .run(client.args_line(&format!("{HOST} {PORT}")))?
            .prints("done")
            .map(drop)
    },
)];

//! Event loops that change their sets or accept by io_uring, and a supervisor whose workers inherit
//! its listener.

use std::fs;

use crate::fetched::{NODE, UVLOOP};
use crate::more::{Extra, echo};
use crate::python::{INTERPRETER, script};
use crate::scene::HOST;

const SERVER: &str = concat!(
    "import uvloop\nuvloop.install()\n",
    include_str!("echo_server.py")
);

pub(crate) const LOOPS: &[Extra] = &[
    echo::<7785>("uvloop: echo server", |scene| {
        let server = script(scene.server(INTERPRETER), SERVER);
        server
            .args_line(&format!("{HOST} 7785"))
            .env("PYTHONPATH", UVLOOP.modules())
            .spawn()
    })
    .of(&UVLOOP)
    .heavy()
    .also_by_sdp(),
    echo::<7786>("Node 24: echo server, io_uring", |scene| {
        let text = format!(
            "require('net').createServer({{allowHalfOpen: true}}, s => s.pipe(s))\
             .listen(7786, '{HOST}')"
        );
        let server = scene.server(NODE.file()).arg("-e").arg(text);
        server.env("UV_USE_IO_URING", "1").spawn()
    })
    .of(&NODE)
    .heavy()
    .also_by_sdp(),
    // A worker that takes longer to start than a client waits is served over TCP.
    echo::<7787>("supervisord: executes a worker", |scene| {
        fs::write(scene.path("accepts.py"), include_str!("accepts.py"))?;
        let settings = format!(
            "[supervisord]\nnodaemon = true\nlogfile = /dev/null\nlogfile_maxbytes = 0\n\
             pidfile = {dir}/pid\n\
             [fcgi-program:echo]\nsocket = tcp://{HOST}:7787\nsocket_backlog = 64\n\
             command = {INTERPRETER} {dir}/accepts.py 0\nprocess_name = worker\n\
             redirect_stderr = true\nstdout_logfile = /dev/fd/2\nstdout_logfile_maxbytes = 0\n",
            dir = scene.dir().display()
        );
        fs::write(scene.path("supervisord.conf"), settings)?;
        let server = scene.server(INTERPRETER).arg("/usr/bin/supervisord");
        server.args_line("-c supervisord.conf").spawn()
    })
    .needs(&["/usr/bin/supervisord"])
    .or_over_tcp()
    .heavy()
    .also_by_sdp(),
];

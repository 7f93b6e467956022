//! Which sockets leave TCP, in this process.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use ops_rules::{Query, Role, Rules, Source, Target};

use crate::protocol::Protocol;
use crate::test_protocol::TestProtocol;

/// How long offload protocols may delay a TCP connect where no rule says otherwise.
const WITHIN: Duration = Duration::from_millis(200);

/// What this process decides by. It is read when the first socket connects or listens, so a program
/// without sockets pays nothing for it.
struct Policy {
    rules: Rules,
    program: String,
    user: u32,
    protocols: Vec<Box<dyn Protocol>>,
}

/// What is decided for one socket.
pub(crate) struct Decision {
    /// The protocols that may carry it, best first.
    pub(crate) protocols: &'static [Box<dyn Protocol>],
    /// How long they may take all together.
    pub(crate) within: Duration,
    /// Whether TCP takes over when none of them can.
    pub(crate) tcp: bool,
}

/// `None`: the socket is the kernel's.
pub(crate) fn decide(role: Role, address: SocketAddr) -> Option<Decision> {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    let policy = POLICY.get_or_init(Policy::of_this_process);
    if policy.protocols.is_empty() {
        return None;
    }
    let verdict = policy.rules.decide(&Query {
        role,
        program: &policy.program,
        user: policy.user,
        address,
        interface: None,
    });
    (verdict.target != Target::Tcp).then(|| Decision {
        protocols: &policy.protocols,
        within: verdict.rule.and_then(|rule| rule.within).unwrap_or(WITHIN),
        tcp: verdict.target == Target::Both,
    })
}

impl Policy {
    fn of_this_process() -> Self {
        let secure = is_privileged();
        let mut protocols: Vec<Box<dyn Protocol>> = Vec::new();
        let (rules, usable) = match Source::choose(|name| std::env::var_os(name), secure).load() {
            Ok(loaded) => (loaded.rules, true),
            Err(error) => {
                // A file that cannot be used offloads nothing, and says so where a user sees it.
                eprintln!("opsrun: {error}; all sockets stay on TCP");
                (Rules::default(), false)
            }
        };
        if usable && std::env::var_os("OPS_TEST_PROTOCOL").is_some() && !secure {
            protocols.push(Box::new(TestProtocol));
        }
        let program = std::env::current_exe().unwrap_or_default();
        Self {
            rules,
            program: program.to_string_lossy().into_owned(),
            user: rustix::process::geteuid().as_raw(),
            protocols,
        }
    }
}

/// Whether the loader distrusts the environment of this program.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: it takes a number and returns one.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

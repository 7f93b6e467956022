//! The staged libraries in the process of the suite itself.

use std::env;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::{
    IA_NAME, SdpTraces, Stage, adapter_line, carrier_params, device, provider_name, scratch,
};

/// Makes this process load the staged `libdat2.so.2`, by setting the variable `library`. Writes a
/// registry with `adapters`, each a name and its parameters, to `file`.
///
/// # Safety
/// Until this returns, no other thread of the process may read the environment.
pub unsafe fn load_staged(library: &str, file: &Path, adapters: &[(&str, &str)]) -> Result<()> {
    let provider = Stage::find()?.lib().join(provider_name());
    let (device, carrier) = (device(), carrier_params());
    let line = |(name, params): &(&str, &str)| {
        let params = match &device {
            Some(device) if *name == IA_NAME => device,
            _ => *params,
        };
        adapter_line(name, provider.display(), &format!("{params}{carrier}"))
    };
    // SAFETY: the caller guarantees that no other thread reads the environment.
    unsafe {
        load_registry(
            library,
            file,
            &adapters.iter().map(line).collect::<String>(),
        )
    }
}

/// As [`load_staged`], with the text of the registry.
///
/// # Safety
/// As for [`load_staged`].
unsafe fn load_registry(library: &str, file: &Path, text: &str) -> Result<()> {
    let stage = Stage::find()?;
    // Another process of the suite may read the file meanwhile, and must not find half of it.
    let new = file.with_extension(std::process::id().to_string());
    fs::write(&new, text).with_context(|| format!("writing {}", new.display()))?;
    fs::rename(&new, file).with_context(|| format!("renaming {}", new.display()))?;
    // SAFETY: the caller guarantees that no other thread reads the environment.
    unsafe {
        env::set_var("DAT_OVERRIDE", file);
        env::set_var(library, stage.lib().join("libdat2.so.2"));
    }
    Ok(())
}

/// Makes this process load the staged libraries, with one adapter [`IA_NAME`] with `params`, and
/// write the messages of its SDP connections. All files are in a directory of this process in
/// `tmp`. An error is a text, because a `static` keeps the result for all tests.
///
/// # Safety
/// As for [`load_staged`].
pub unsafe fn load_staged_sdp(tmp: &str, params: &str) -> Result<SdpTraces, String> {
    let load = || -> Result<SdpTraces> {
        let dir = scratch(tmp).join(format!("sdp-{}", std::process::id()));
        let traces = SdpTraces::below(&dir)?;
        let (library, file) = ("DAT_LIBRARY", dir.join("dat.conf"));
        // SAFETY: the caller guarantees that no other thread reads the environment.
        unsafe {
            load_staged(library, &file, &[(IA_NAME, params)])?;
            traces.of_this_process();
        }
        Ok(traces)
    };
    load().map_err(|error| format!("{error:#}"))
}

/// Waits until no SDP stack of this process has a thread any more. A stack's thread closes the
/// stack's last sockets, and their records are complete only after that.
pub fn await_end_of_stack_threads(limit: Duration) -> Result<()> {
    let end = Instant::now() + limit;
    let is_stack = |task: fs::DirEntry| {
        // The thread may have ended.
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "sdp-stack\n")
    };
    while fs::read_dir("/proc/self/task")?.flatten().any(is_stack) {
        ensure!(Instant::now() < end, "a stack is still there");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

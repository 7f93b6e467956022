//! A command line as a test.

use std::fmt;

use anyhow::Result;

use crate::StackEnv;

/// The runs that include a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// All runs.
    Quick,
    /// Full runs only.
    Full,
    /// No run; the name of the case gives the reason.
    Never,
}

type Run = Box<dyn Fn(&StackEnv) -> Result<()> + Send + Sync>;

/// A command line of one of OFA's programs, and the function that judges it.
pub struct Case {
    name: String,
    when: When,
    run: Run,
}

impl Case {
    /// Makes a case that is always run.
    pub(super) fn new(
        name: &str,
        run: impl Fn(&StackEnv) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            when: When::Quick,
            run: Box::new(run),
        }
    }

    /// Makes a case that is never run, because its result is meaningless.
    pub(super) fn never(name: &str) -> Self {
        Self {
            when: When::Never,
            ..Self::new(name, |_| Ok(()))
        }
    }

    /// Restricts the case to full runs.
    pub(super) fn only_in_full(self) -> Self {
        Self {
            when: When::Full,
            ..self
        }
    }

    /// The program and its options.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The runs that include the case.
    pub fn when(&self) -> When {
        self.when
    }

    /// Runs the case's programs over the stack of `env`.
    ///
    /// # Errors
    /// When the programs do not end as expected; the message contains their output.
    pub fn run(&self, env: &StackEnv) -> Result<()> {
        (self.run)(env)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .field("when", &self.when)
            .finish_non_exhaustive()
    }
}

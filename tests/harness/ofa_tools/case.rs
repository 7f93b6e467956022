//! One command line as a test.

use std::fmt;

use anyhow::Result;

use crate::StackEnv;

/// When a case is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always.
    Quick,
    /// In full runs.
    Full,
    /// In none: its name says why.
    Never,
}

type Run = Box<dyn Fn(&StackEnv) -> Result<()> + Send + Sync>;

/// A command line of one of OFA's programs, and how it is judged.
pub struct Case {
    name: String,
    when: When,
    run: Run,
}

impl Case {
    /// A case that is run always.
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

    /// A case that proves nothing whatever comes of it.
    pub(super) fn never(name: &str) -> Self {
        Self {
            when: When::Never,
            ..Self::new(name, |_| Ok(()))
        }
    }

    /// Leaves it to full runs.
    pub(super) fn only_in_full(self) -> Self {
        Self {
            when: When::Full,
            ..self
        }
    }

    /// The program and its options.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it is run.
    #[must_use]
    pub fn when(&self) -> When {
        self.when
    }

    /// Runs its programs over the stack of `env`.
    ///
    /// # Errors
    /// When they do not come to what they should; the message holds what they printed.
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

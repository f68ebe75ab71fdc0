//! Causes for which something ended, with their counts.

/// Defines the causes of a crate, `Cause`, each with its text, and `Counts`, how often each was met.
#[macro_export]
macro_rules! causes {
    ($head:literal; $($(#[$doc:meta])* $name:ident = $text:literal)*) => {
        #[doc = $head]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
        pub enum Cause { $($(#[$doc])* #[error($text)] $name,)* }

        impl Cause {
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }

        /// Counts of causes.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counts([u64; Cause::ALL.len()]);

        impl Counts {
            /// Returns how often something ended for a cause.
            #[must_use]
            pub fn of(&self, cause: Cause) -> u64 {
                self.0[cause as usize]
            }

            /// Counts a cause, and returns it.
            pub(crate) fn add(&mut self, cause: Cause) -> Cause {
                self.0[cause as usize] += 1;
                cause
            }
        }
    };
}

use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use clap_complete::Shell;

/// Print completions for a shell: bash, zsh, fish, elvish or powershell
///
/// For one session of bash: `source <(flame completions bash)`. For all: the same into a file of
/// ~/.local/share/bash-completion/completions/ (bash), of a folder of fpath with the name _flame (zsh), or of
/// ~/.config/fish/completions/ (fish).
#[derive(Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> Result<Status, Error> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::help_groups::command(), "flame", &mut script);
        crate::console::raw(&script);
        Ok(Status::Done)
    }
}

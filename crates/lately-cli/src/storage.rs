//! A folder of counts that no server has.

use std::path::PathBuf;

use clap::Args;
use lately_server::{Config, Storage};

use crate::error::CliError;

/// Which folder to use, in place of a server.
#[derive(Args)]
pub(crate) struct FolderArgs {
    /// A folder of counts that no server is using, in place of a server.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// The config file of the server whose folder it is: classes and memory ceiling are as it says.
    #[arg(long, value_name = "FILE", requires = "data")]
    config: Option<PathBuf>,
}

impl FolderArgs {
    /// The folder, if one was named.
    pub(crate) fn storage(&self) -> Option<Storage> {
        self.data.clone().map(|path| Storage { path, ..Storage::default() })
    }

    pub(crate) fn config(&self) -> Result<Config, CliError> {
        let config = self.config.as_ref().map_or_else(|| Ok(Config::default()), |path| Config::load(path));
        config.map_err(|error| CliError::new("config", error, "nothing was done"))
    }
}

//! The source or target of a dump: a server, or a data folder that no server uses.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use lately_server::config::parse_folder;

use crate::error::CliError;
use crate::http::Http;
use crate::server::ServerArgs;

/// Parses the path of a data folder.
pub(crate) fn folder_parser() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.to_str() {
        Some(text) => parse_folder(text),
        None => Ok(path),
    })
}

/// A server or a folder.
#[derive(Args)]
pub(crate) struct PlaceArgs {
    /// A data folder that no server uses, in place of a server.
    #[arg(long, value_name = "DIR", conflicts_with = "server", value_parser = folder_parser())]
    data: Option<PathBuf>,

    #[command(flatten)]
    server: ServerArgs,

    /// Address of the server's HTTP listener, which carries the dump. Without --server, no other is asked [default: as the server reports].
    #[arg(long, value_name = "ADDR", conflicts_with = "data")]
    http: Option<String>,
}

impl PlaceArgs {
    /// The folder, if `--data` was given.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// The server.
    pub(crate) fn http(&self) -> Result<Http, CliError> {
        self.server.http(self.http.as_deref())
    }
}

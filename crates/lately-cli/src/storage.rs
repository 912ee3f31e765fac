//! Where counts are taken from, or go to: a server, or a folder that no server has.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use lately_server::config::parse_folder;

use crate::error::CliError;
use crate::http::Http;
use crate::server::ServerArgs;

/// Reads the name of a folder of counts.
pub(crate) fn folder_parser() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.to_str() {
        Some(text) => parse_folder(text),
        None => Ok(path),
    })
}

/// A server or a folder.
#[derive(Args)]
pub(crate) struct PlaceArgs {
    /// A folder of counts that no server is using, in place of a server.
    #[arg(long, value_name = "DIR", conflicts_with = "server", value_parser = folder_parser())]
    data: Option<PathBuf>,

    #[command(flatten)]
    server: ServerArgs,

    /// Address of the server's HTTP listener, which carries the dump [default: as the server says].
    #[arg(long, value_name = "ADDR", conflicts_with = "data")]
    http: Option<String>,
}

impl PlaceArgs {
    /// The folder, if one was named.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// The server.
    pub(crate) fn http(&self) -> Result<Http, CliError> {
        self.server.http(self.http.as_deref())
    }
}

//! The program `heartwheel`: a server that Faktory workers connect to, and a command line for its operators.

#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}

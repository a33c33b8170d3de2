//! How a fleet is measured: who walks which workers in what order ([`course`]), and what is made of it ([`report`]).

#![allow(dead_code, reason = "each bench uses a part of it")]

pub(crate) mod course;
pub(crate) mod gate;
pub(crate) mod quiet;
pub(crate) mod report;

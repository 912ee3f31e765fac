//! Tests of the journal's public interface, on disks that fail.

mod checkpoints;
mod classes;
mod damage;
mod ends;
mod life;
mod past;
mod released;
mod sim_disk;
mod simulation;
mod versions;
mod weeks;

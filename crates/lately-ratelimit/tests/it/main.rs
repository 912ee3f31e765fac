//! Rules through their public face: any text, and rules and requests against a model.

mod any_text;
mod matching;
mod mistakes;
mod readme;

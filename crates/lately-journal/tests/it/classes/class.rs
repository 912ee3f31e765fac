//! Random classes, for the store and the model.

use std::fmt;

use lately::{Pattern, Settings, Span, Store};
use lately_classics::{ModelSettings, RUNGS_MS};

use super::script::Choices;

const DAY_MS: i64 = 86_400_000;

/// The keys. The first two match the pattern of a class, the others have the default class.
pub(crate) const KEYS: [&[u8]; 4] = [b"a:0", b"a:1", b"b:0", b"b:1"];
/// The number of keys that match the pattern.
const PATTERN_KEYS: usize = 2;

/// The settings of a class, in milliseconds. As in a config file, some may be missing.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Class {
    resolution_ms: Option<i64>,
    window_ms: Option<i64>,
    exact_ms: Option<i64>,
    retain_ms: Option<i64>,
    max_skew_ms: Option<i64>,
    precision_ppm: Option<u32>,
}

/// The classes of a server: the one with the pattern, and the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Classes(pub(crate) [Class; 2]);

fn span(ms: i64) -> Span {
    Span::from_millis(ms).expect("a span")
}

impl Class {
    pub(crate) fn any(choices: &mut Choices<'_>) -> Class {
        let resolutions = RUNGS_MS.partition_point(|&rung_ms| rung_ms <= DAY_MS);
        let resolution_ms = RUNGS_MS[choices.below(resolutions)];
        let class = match choices.below(6) {
            0 => return Class::default(),
            1 | 2 => Class { resolution_ms: Some(resolution_ms), ..Class::default() },
            3 => Class {
                resolution_ms: Some(resolution_ms),
                retain_ms: Some(resolution_ms.max(choices.span_ms())),
                precision_ppm: Some(choices.one_of(&[100, 1_000, 100_000, 1_000_000])),
                ..Class::default()
            },
            _ => {
                let panes = [1 + choices.ms(300), choices.ms(100), choices.ms(100).pow(2)];
                let model = ModelSettings::of_panes(resolution_ms, panes);
                Class {
                    resolution_ms: Some(resolution_ms),
                    window_ms: Some(model.window_ms),
                    exact_ms: Some(model.exact_ms),
                    retain_ms: Some(model.retain_ms),
                    max_skew_ms: Some(choices.one_of(&[1, 1_000, 10_000, 3_600_000])),
                    precision_ppm: Some(choices.one_of(&[100, 10_000, 12_345, 50_000, 333_333, 1_000_000])),
                }
            }
        };
        // Some retentions are too short for the other settings.
        if class.build().is_ok() {
            class
        } else {
            Class { resolution_ms: Some(resolution_ms), ..Class::default() }
        }
    }

    fn build(&self) -> Result<Settings, lately::SettingsError> {
        let mut builder = Settings::builder();
        let set = |ms: Option<i64>| ms.map(span);
        if let Some(resolution) = set(self.resolution_ms) {
            builder = builder.resolution(resolution);
        }
        if let Some(window) = set(self.window_ms) {
            builder = builder.window(window);
        }
        if let Some(exact) = set(self.exact_ms) {
            builder = builder.exact(exact);
        }
        if let Some(retain) = set(self.retain_ms) {
            builder = builder.retain(retain);
        }
        if let Some(max_skew) = set(self.max_skew_ms) {
            builder = builder.max_skew(max_skew);
        }
        if let Some(ppm) = self.precision_ppm {
            builder = builder.precision(f64::from(ppm) / 1e6);
        }
        builder.build()
    }

    fn settings(&self) -> Settings {
        self.build().expect("`any` makes only valid classes")
    }
}

/// Only the settings that were given.
impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        let named = [
            ("resolution", self.resolution_ms),
            ("window", self.window_ms),
            ("exact", self.exact_ms),
            ("retain", self.retain_ms),
            ("max_skew", self.max_skew_ms),
        ];
        for (name, ms) in named {
            if let Some(ms) = ms {
                write!(f, " {name} {}", span(ms))?;
            }
        }
        if let Some(ppm) = self.precision_ppm {
            write!(f, " precision {ppm} ppm")?;
        }
        f.write_str(" }")
    }
}

impl Classes {
    pub(crate) fn any(choices: &mut Choices<'_>) -> Classes {
        let first = Class::any(choices);
        Classes([first, if choices.once_in(2) { first } else { Class::any(choices) }])
    }

    /// An empty store with these classes.
    pub(crate) fn store(&self, seed: u64) -> Store {
        let [named, default] = self.0.map(|class| class.settings());
        let builder = Store::builder().seed(seed).class(Pattern::new(b"a:*"), named);
        builder.class(Pattern::new(b"*"), default).build().expect("few classes")
    }

    /// The settings of a key, for the model.
    pub(crate) fn models(&self) -> [ModelSettings; KEYS.len()] {
        let models = self.0.map(|class| model(&class.settings()));
        std::array::from_fn(|key| models[usize::from(key >= PATTERN_KEYS)])
    }
}

/// A store that keeps hits unchanged, as tools without a server use it.
pub(crate) fn carrier(seed: u64) -> Store {
    let builder = Store::builder().seed(seed).class(Pattern::new(b"*"), Settings::to_carry());
    builder.build().expect("few classes")
}

#[expect(clippy::cast_possible_truncation, reason = "a whole number of millionths, at most a million")]
fn model(settings: &Settings) -> ModelSettings {
    ModelSettings {
        resolution_ms: settings.resolution().as_millis(),
        window_ms: settings.window().as_millis(),
        exact_ms: settings.exact().as_millis(),
        retain_ms: settings.retain().as_millis(),
        max_skew_ms: settings.max_skew().as_millis(),
        precision_millionths: (settings.precision() * 1e6).round() as i64,
        dedupe_ms: settings.dedupe().map(Span::as_millis),
        unique: settings.unique(),
    }
}

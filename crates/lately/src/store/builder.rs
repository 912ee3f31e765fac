//! How a store is set up.

use super::Store;
use crate::class::{Classes, Pattern};
use crate::error::SettingsError;
use crate::settings::{Settings, SettingsBuilder};
use crate::time::Span;

/// Settings of a store not yet built.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct StoreBuilder {
    default: SettingsBuilder,
    classes: Vec<(Pattern, Settings)>,
    ceiling_bytes: Option<u64>,
    seed: Option<u64>,
}

impl StoreBuilder {
    /// Settings of keys that no class matches.
    pub fn settings(mut self, settings: SettingsBuilder) -> StoreBuilder {
        self.default = settings;
        self
    }

    /// See [`SettingsBuilder::resolution`]; for keys that no class matches, as are those up to `max_skew`.
    pub fn resolution(mut self, resolution: Span) -> StoreBuilder {
        self.default = self.default.resolution(resolution);
        self
    }

    /// See [`SettingsBuilder::window`].
    pub fn window(mut self, window: Span) -> StoreBuilder {
        self.default = self.default.window(window);
        self
    }

    /// See [`SettingsBuilder::exact`].
    pub fn exact(mut self, exact: Span) -> StoreBuilder {
        self.default = self.default.exact(exact);
        self
    }

    /// See [`SettingsBuilder::retain`].
    pub fn retain(mut self, retain: Span) -> StoreBuilder {
        self.default = self.default.retain(retain);
        self
    }

    /// See [`SettingsBuilder::precision`].
    pub fn precision(mut self, precision: f64) -> StoreBuilder {
        self.default = self.default.precision(precision);
        self
    }

    /// See [`SettingsBuilder::max_skew`].
    pub fn max_skew(mut self, max_skew: Span) -> StoreBuilder {
        self.default = self.default.max_skew(max_skew);
        self
    }

    /// Adds a class: keys that match `pattern`, and no class added before, have these settings.
    pub fn class(mut self, pattern: Pattern, settings: Settings) -> StoreBuilder {
        self.classes.push((pattern, settings));
        self
    }

    /// The most bytes keys and their hits may take, as the store accounts for them. Past it keys are
    /// evicted. Default: no ceiling.
    pub fn memory_ceiling(mut self, bytes: u64) -> StoreBuilder {
        self.ceiling_bytes = Some(bytes);
        self
    }

    /// Where keys lie follows from a seed, and so what follows from where they lie: for simulations that are
    /// to be played again. Who knows it can choose keys that collide. Default: another for each store.
    pub fn seed(mut self, seed: u64) -> StoreBuilder {
        self.seed = Some(seed);
        self
    }

    /// Builds the store.
    ///
    /// # Errors
    /// [`SettingsError`] when the default settings contradict each other, or there are too many
    /// classes.
    pub fn build(self) -> Result<Store, SettingsError> {
        let classes = Classes::new(self.classes, self.default.build()?)?;
        Ok(Store::new(classes, self.ceiling_bytes, self.seed))
    }
}

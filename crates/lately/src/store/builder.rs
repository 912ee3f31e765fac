//! How a store is set up.

use super::Store;
use crate::class::{Classes, Pattern};
use crate::error::SettingsError;
use crate::settings::{Settings, SettingsBuilder};
use crate::time::Span;

/// Builds a [`Store`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct StoreBuilder {
    default: SettingsBuilder,
    classes: Vec<(Pattern, Settings)>,
    ceiling_bytes: Option<u64>,
    seed: Option<u64>,
}

impl StoreBuilder {
    /// Sets all settings of keys that no class matches.
    pub fn settings(mut self, settings: SettingsBuilder) -> StoreBuilder {
        self.default = settings;
        self
    }

    /// Sets the width of the newest panes, for keys that no class matches. See [`SettingsBuilder::resolution`].
    pub fn resolution(mut self, resolution: Span) -> StoreBuilder {
        self.default = self.default.resolution(resolution);
        self
    }

    /// Sets the default window, for keys that no class matches. See [`SettingsBuilder::window`].
    pub fn window(mut self, window: Span) -> StoreBuilder {
        self.default = self.default.window(window);
        self
    }

    /// Sets the exact span, for keys that no class matches. See [`SettingsBuilder::exact`].
    pub fn exact(mut self, exact: Span) -> StoreBuilder {
        self.default = self.default.exact(exact);
        self
    }

    /// Sets the retention, for keys that no class matches. See [`SettingsBuilder::retain`].
    pub fn retain(mut self, retain: Span) -> StoreBuilder {
        self.default = self.default.retain(retain);
        self
    }

    /// Sets the precision, for keys that no class matches. See [`SettingsBuilder::precision`].
    pub fn precision(mut self, precision: f64) -> StoreBuilder {
        self.default = self.default.precision(precision);
        self
    }

    /// Sets how far ahead of the clock a hit may be, for keys that no class matches. See [`SettingsBuilder::max_skew`].
    pub fn max_skew(mut self, max_skew: Span) -> StoreBuilder {
        self.default = self.default.max_skew(max_skew);
        self
    }

    /// Adds a class: settings for the keys that match `pattern`. The first class that matches a key applies.
    pub fn class(mut self, pattern: Pattern, settings: Settings) -> StoreBuilder {
        self.classes.push((pattern, settings));
        self
    }

    /// Sets the memory ceiling, in bytes as the store accounts for them. At the ceiling keys are evicted. Default: none.
    pub fn memory_ceiling(mut self, bytes: u64) -> StoreBuilder {
        self.ceiling_bytes = Some(bytes);
        self
    }

    /// Sets the seed of the hash function, for reproducible simulations. An attacker who knows the seed can choose keys
    /// that collide. Default: random for each store.
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

// Package step is what all experiments are made of: one configured training step (a
// complete case of a model, and what estimates of it go by), trials of it, which an
// executor records and replays, estimates from their results, and all that as reports
// have it.
package step

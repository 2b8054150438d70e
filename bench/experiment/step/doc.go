// Package step is what all experiments are made of: one configured training step (a
// complete case of a model, and what estimates of it go by) that is recorded,
// replayed on a simulated board, estimated, and shown in reports.
package step

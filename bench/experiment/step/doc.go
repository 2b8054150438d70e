// Package step defines a configured training step, which all experiments use: a complete case of a model, and the
// residuals and coefficients for estimates of its memory. An executor records and replays trials of the step. The
// package converts their results to estimates and to the types of reports.
package step

// Package step defines a configured training step, which all experiments use: a complete case of a model, and the
// evidence for estimates of it. An executor records and replays trials of the step. The package makes estimates from
// their results and converts them to the types of reports.
package step

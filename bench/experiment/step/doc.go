// Package step is what all experiments are made of: one configured training step, which is a complete case of a model
// and the evidence that estimates of it are based on; trials of the step, which an executor records and replays;
// estimates from the results of trials; and the conversion of all these to the types of reports.
package step

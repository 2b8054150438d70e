// Package experiment holds the experiments: sweeps over batch sizes, and the
// comparison of estimates with what PyTorch really needed. It measures and
// returns values; package report writes them.
package experiment

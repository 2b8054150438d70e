// Package device says what a GPU is: a [GPU] of the catalog describes one,
// as PyTorch and its libraries see it.
package device

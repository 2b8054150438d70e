// Package nn implements the layers of torch.nn under their own names: parameters, the module tree, and forward
// functions that read like PyTorch's.
package nn

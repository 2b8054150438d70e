// Package aten is the operator table: it maps each operator of PyTorch to a call of the recorder. Operators are
// identified by their ATen schemas (name, overload, argument names, types and defaults), as in PyTorch's sources.
//
// op, ok := aten.ByTarget("torch.ops.aten.layer_norm.default")    args, err := op.Bind(aten.Arg{Name: "input", Value:
// x}, aten.Arg{Name: "normalized_shape", Value: []int64{768}})        out, err := op.Call(tape, args)
//
// Arguments that do not matter to memory (eps, the numbers that are added or filled in, interpolation coefficients,
// cudnn_enable) are accepted and ignored: the recorder's tensors have shapes and no data. For the same reason the
// caller sets sizes that depend on data, such as the number of true elements of a mask (trace.Tensor.SetTrue).
package aten

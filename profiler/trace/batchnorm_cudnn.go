package trace

// cudnnBatchNormWorkspace estimates what cuDNN's persistent channels-last
// batch norm asks for in training: fp32 partial sums of mean and variance for
// each tile of rows, and a fixed part. The rows of a tile are those of
// four recorded shapes; the exact rule is not public.
func cudnnBatchNormWorkspace(x *Tensor, forward bool) int64 {
	const fixed = 1088
	rows := int64(96)
	if forward {
		rows = 64
		if x.dtype.IsHalf() {
			rows = 160
		}
	}
	channels := x.shape[1]
	tiles := divUp(x.numel/max(channels, 1), rows)
	return fixed + 8*channels*tiles
}

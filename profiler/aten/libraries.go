package aten

import "github.com/vprof/vprof/profiler/trace"

// libraries are operators that torchvision and transformers add to PyTorch.
var libraries = family{
	"transformers::grouped_mm_fallback": (*tensor).GroupedMM,
	"torchvision::roi_align": func(a *Args) *tensor {
		y, _ := a.regions("roi_align", a.first(0).Size(1), false)
		return y
	},
	"torchvision::roi_pool": func(a *Args) (*tensor, *tensor) {
		return a.regions("roi_pool", a.first(0).Size(1), true)
	},
	"torchvision::ps_roi_align": positionSensitive("ps_roi_align"),
	"torchvision::ps_roi_pool":  positionSensitive("ps_roi_pool"),
	"torchvision::deform_conv2d": func(a *Args) *tensor {
		return a.first(0).DeformConv2D(trace.DeformConv2DArgs{
			Weight: a.Tensor("weight"), Offset: a.Tensor("offset"), Mask: a.Tensor("mask"), Bias: a.Tensor("bias"),
			Stride: a.twoOf("stride_h", "stride_w"), Padding: a.twoOf("pad_h", "pad_w"),
			Dilation: a.twoOf("dilation_h", "dilation_w"),
			Groups:   a.Int("groups"),
		})
	},
}

// regions is an operator on regions of interest; places says that it tells where values are
// from.
func (a *Args) regions(op string, channels int64, places bool) (y, from *tensor) {
	return a.first(0).Regions(a.Tensor("rois"), trace.RegionArgs{
		Op: op, Height: a.Int("pooled_height"), Width: a.Int("pooled_width"), Channels: channels, Places: places,
	})
}

// positionSensitive is an operator that takes each place of a region's result from
// channels of its own.
func positionSensitive(op string) func(a *Args) (y, from *tensor) {
	return func(a *Args) (*tensor, *tensor) {
		return a.regions(op, a.first(0).Size(1)/(a.Int("pooled_height")*a.Int("pooled_width")), true)
	}
}

func (a *Args) twoOf(height, width string) [2]int64 { return [2]int64{a.Int(height), a.Int(width)} }

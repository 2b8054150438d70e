package redimnet

// context is the kind of 1-D block.
type context int

const (
	convAndAttention context = iota
	attentionOnly
)

// block is the kind of 2-D block.
type block int

const (
	convNext block = iota
	basicResNet
	gatedResNet
)

// stage is a row of a size's table: frequency stride, number of 2-D blocks,
// channel expansion, and reduction of the 1-D block (0: no such block).
type stage struct{ stride, blocks, expansion, reduction int64 }

// config describes a ReDimNet body.
type config struct {
	bins, channels int64
	context        context
	block          block
	groupDivisor   int64
	globalContext  bool
	hop            int64
	outChannels    int64 // 0: no output convolution
	stages         []stage
}

// sizes are the published bodies. Sources: the stage tables of wespeaker's
// port of ReDimNet (b0, b1, b3 to b6), the class defaults of IDRnD/ReDimNet
// (M); the table of b2 is the one that gives the 5,016,305 parameters its
// trainer reports.
var sizes = map[string]config{
	"b0": {
		60, 10, convAndAttention, basicResNet, 1, true, 160, 0,
		[]stage{{1, 2, 1, 30}, {2, 3, 2, 30}, {1, 3, 3, 30}, {2, 4, 2, 10}, {1, 3, 1, 10}},
	},
	"b1": {
		72, 12, convAndAttention, convNext, 8, false, 160, 0,
		[]stage{{1, 2, 1, 0}, {2, 3, 1, 0}, {3, 4, 1, 12}, {2, 5, 1, 12}, {2, 3, 1, 8}},
	},
	"b2": {
		72, 16, convAndAttention, convNext, 4, false, 160, 0,
		[]stage{{1, 2, 1, 12}, {2, 2, 1, 12}, {1, 3, 1, 12}, {3, 4, 1, 8}, {1, 4, 1, 8}, {2, 4, 1, 4}},
	},
	"b3": {
		72, 16, convAndAttention, gatedResNet, 1, true, 160, 0,
		[]stage{{1, 6, 4, 32}, {2, 6, 2, 32}, {1, 8, 2, 32}, {2, 10, 2, 16}, {1, 10, 1, 16}, {2, 8, 1, 16}},
	},
	"b4": {
		72, 32, convAndAttention, gatedResNet, 1, true, 160, 0,
		[]stage{{1, 4, 2, 48}, {2, 4, 2, 48}, {1, 6, 2, 48}, {2, 6, 1, 32}, {1, 8, 1, 24}, {2, 4, 1, 16}},
	},
	"b5": {
		72, 32, convAndAttention, gatedResNet, 16, true, 240, 0,
		[]stage{{1, 4, 2, 48}, {2, 4, 2, 48}, {1, 6, 2, 48}, {2, 6, 1, 32}, {1, 8, 1, 24}, {2, 4, 1, 16}},
	},
	"b6": {
		72, 32, convAndAttention, basicResNet, 32, true, 160, 0,
		[]stage{{1, 4, 4, 32}, {2, 6, 2, 32}, {1, 6, 2, 24}, {3, 8, 1, 24}, {1, 8, 1, 16}, {2, 8, 1, 16}},
	},
	"M": {
		72, 16, attentionOnly, convNext, 4, false, 160, 0,
		[]stage{{1, 2, 1, 12}, {2, 2, 1, 12}, {1, 3, 1, 12}, {2, 4, 1, 8}, {1, 4, 1, 8}, {2, 4, 1, 4}},
	},
}

// order is the order in which sizes are listed.
var order = []string{"b0", "b1", "b2", "b3", "b4", "b5", "b6", "M"}

// asTrained is what the MRL trainer builds from a size's checkpoint: it takes
// over channels, bins, block kinds and stages, and has its own defaults for
// the rest.
func asTrained(c config) config {
	c.groupDivisor, c.globalContext, c.hop, c.outChannels = 4, false, 160, 512
	return c
}

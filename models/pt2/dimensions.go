package pt2

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/pt2/export"
)

// dimensions are the sizes that a program leaves open (torch.export's dynamic shapes): the batch, and others, which
// become settings.
type dimensions struct {
	// batch is the symbol of the batch size; "" if the file has one batch size, which is then fixed.
	batch        string
	otherSymbols []string // further symbols of the batch size
	bounds       export.Range
	fixed        int
	// batchSizes lists the sizes that depend on a fixed batch; nil if they are unknown.
	batchSizes *export.Batch
	// inferred reports whether vprof computed affine because the file does not contain it.
	inferred bool
	settings []models.Setting
	symbols  map[string]string // setting of each symbol
	// named holds the names that the user gave to symbols. unit is the name of one sample if it differs from
	// BatchUnit's default.
	named map[string]export.Symbol
	unit  string
}

// maxBatchSize is the upper bound of a dimension for which the file has none.
const maxBatchSize = 1 << 24

// findDimensions returns the program's dimensions. The batch is the one that the capture names, or the first
// dimension of the first input with a symbolic size. Other symbols become settings.
func findDimensions(p *export.Program) *dimensions {
	d := &dimensions{symbols: map[string]string{}}
	var at map[string]int
	if p.Extra != nil {
		d.batchSizes, at = p.Extra.Batch, p.Extra.BatchDims
		d.named = p.Extra.Symbols
	}
	seen := d.findBatch(p, at)
	for i := range p.Inputs {
		in := &p.Inputs[i]
		for dim, s := range in.Sizes {
			s.Expr.Symbols(func(name string) { d.addSetting(p, in, dim, name, seen) })
		}
		in.Size.Expr.Symbols(func(name string) { d.addSetting(p, in, -1, name, seen) })
	}
	if readsTokens(p) {
		d.settings = append(d.settings, hf.LossSettings()...)
	}
	if hasConv2dWeight(p) {
		d.settings = append(d.settings, models.SwitchSetting(channelsLast, 0,
			"1 to lay images and their filters out with channels last"))
	}
	return d
}

// findBatch sets the symbol of the batch, which is one dimension of each input. It returns the names that are in use.
func (d *dimensions) findBatch(p *export.Program, at map[string]int) (seen map[string]bool) {
	for _, symbol := range slices.Sorted(maps.Keys(d.named)) {
		if d.named[symbol].Name == "batch" && d.batch == "" {
			d.batch, d.bounds = symbol, p.Ranges[symbol]
		}
	}
	for i := range p.Inputs {
		in := &p.Inputs[i]
		if in.Role != export.UserInput || in.Number || at[in.Name] < 0 || at[in.Name] >= len(in.Sizes) {
			continue
		}
		first := in.Sizes[at[in.Name]]
		if d.fixed == 0 && first.Expr == nil {
			d.fixed = int(first.Int)
		}
		first.Expr.Symbols(func(name string) {
			if d.batch == "" {
				d.batch, d.bounds = name, p.Ranges[name]
			}
		})
	}
	if unit := d.named[d.batch].Name; unit != "" && unit != "batch" {
		d.unit = strings.ReplaceAll(unit, "_", "-")
		usage := "size " + unit + ", instead of --batch"
		d.settings = append(d.settings, models.Setting{Name: d.unit, Usage: usage, Max: clampSize(d.bounds.Max)})
	}
	seen = map[string]bool{d.batch: true}
	for symbol, s := range d.named {
		if s.Name == d.named[d.batch].Name && symbol != d.batch {
			d.otherSymbols = append(d.otherSymbols, symbol)
			seen[symbol] = true
		}
	}
	return seen
}

const textLength = "seq-len"

// lengthNames are common names of sizes of texts and images, which have settings of their own.
var lengthNames = strings.Fields("seq seq_len seqlen length len tokens T L h height H w width W")

// channelsLast is the setting of the memory layout of images.
const channelsLast = "channels-last"

func hasConv2dWeight(p *export.Program) bool {
	return slices.ContainsFunc(p.Inputs, func(in export.Input) bool {
		return in.Role == export.Parameter && len(in.Sizes) == 4
	})
}

func (d *dimensions) addSetting(p *export.Program, in *export.Input, dim int, symbol string, seen map[string]bool) {
	if seen[symbol] {
		return
	}
	seen[symbol] = true
	name, usage := dimensionName(in, dim)
	example, given := defaultSize(in, dim), d.named[symbol]
	if given.Given {
		example = given.Example
	}
	if other := d.sameNamedSetting(symbol); other != "" {
		d.symbols[symbol] = other
		return
	}
	if given.Name != "" && (!slices.Contains(lengthNames, given.Name) || strings.HasPrefix(name, in.Name)) {
		name, usage = strings.ReplaceAll(given.Name, "_", "-"), fmt.Sprintf("size %s of %s", given.Name, in.Name)
		example = given.Example
	}
	for d.isTaken(name) {
		name += "-" + in.Name
	}
	d.symbols[symbol] = name
	r := p.Ranges[symbol]
	s := models.Setting{Name: name, Usage: usage, Length: name == textLength, Min: max(r.Min, 1), Max: clampSize(r.Max)}
	s.Default = min(max(example, s.Min), s.Max)
	d.settings = append(d.settings, s)
}

func (d *dimensions) isTaken(name string) bool {
	return slices.ContainsFunc(d.settings, func(s models.Setting) bool { return s.Name == name })
}

// sameNamedSetting returns the setting of another symbol with the same name; "" if there is none. torch.export can have
// several symbols for one size.
func (d *dimensions) sameNamedSetting(symbol string) string {
	for other, name := range d.symbols {
		if given := d.named[symbol].Name; given != "" && given == d.named[other].Name {
			return name
		}
	}
	return ""
}

// dimensionName returns the usual name of an input's dimension, such as seq-len or height, and its help text.
func dimensionName(in *export.Input, dim int) (name, usage string) {
	switch {
	case dim < 0:
		return in.Name, "the number " + in.Name
	case in.Type == export.Long && dim == 1 && len(in.Sizes) == 2:
		return textLength, "tokens of a sequence (" + in.Name + ")"
	case len(in.Sizes) == 4 && dim == 2:
		return "height", "height of an image in pixels (" + in.Name + ")"
	case len(in.Sizes) == 4 && dim == 3:
		return "width", "width of an image in pixels (" + in.Name + ")"
	default:
		return fmt.Sprintf("%s-%d", in.Name, dim), fmt.Sprintf("size of dimension %d of %s", dim, in.Name)
	}
}

func defaultSize(in *export.Input, dim int) int64 {
	name, _ := dimensionName(in, dim)
	switch name {
	case textLength:
		return 512
	case "height", "width":
		return 224
	default:
		return 16
	}
}

func clampSize(n int64) int64 {
	if n <= 0 {
		return maxBatchSize
	}
	return min(n, maxBatchSize)
}

func (d *dimensions) defaultBatch() int {
	if d.batch == "" && d.batchSizes != nil {
		return int(max(d.batchSizes.Exported, 1))
	}
	if d.batchIsFree() {
		return int(min(max(8, d.bounds.Min), clampSize(d.bounds.Max)))
	}
	return max(d.fixed, 1)
}

func (d *dimensions) batchIsFree() bool { return d.batch != "" || d.batchSizes != nil }

func (d *dimensions) sweepBatches() []int {
	if !d.batchIsFree() {
		return []int{d.defaultBatch()}
	}
	var out []int
	for b := 1; b <= 256; b *= 2 {
		if int64(b) <= clampSize(d.bounds.Max) {
			out = append(out, b)
		}
	}
	return out
}

// checkBatch returns an error if the batch size is outside the file's bounds. A lower bound of 2 is ignored, since
// torch.export sets it because it treats size 1 as a constant.
func (d *dimensions) checkBatch(file string, c models.Case) error {
	wrong := func(format string, args ...any) error { return c.FieldError("batch", format, args...) }
	switch low := d.bounds.Min; {
	case !d.batchIsFree() && c.Batch != d.defaultBatch():
		return wrong("%d: %s was exported with a batch of %d alone; export it with dynamic_shapes={...: {0: "+
			"torch.export.Dim(\"batch\", min=2, max=65536)}}, or use vprof capture", c.Batch, file, d.defaultBatch())
	case d.batch != "" && low > 2 && int64(c.Batch) < low, d.batch != "" &&
		int64(c.Batch) > cmp.Or(d.bounds.Max, math.MaxInt64):
		bounds := fmt.Sprintf("from %d to %d", low, d.bounds.Max)
		if d.bounds.Max == 0 {
			bounds = fmt.Sprintf("of %d and more", low)
		}
		return wrong("%d: %s was exported for batches %s; at others the model does something else: "+
			"capture it at one of them, with --input 'NAME=TYPE[batch=%d,...]'", c.Batch, file, bounds, c.Batch)
	}
	return nil
}

// withBatch returns a program of a fixed batch size with another batch size; the program itself if it is unknown which
// sizes depend on the batch.
func (d *dimensions) withBatch(p *export.Program, batch int64) (*export.Program, error) {
	if d.batch != "" || d.batchSizes == nil || batch == d.batchSizes.Exported {
		return p, nil
	}
	out := *p
	out.Inputs, out.Nodes = slices.Clone(p.Inputs), slices.Clone(p.Nodes)
	for _, a := range d.batchSizes.Inputs {
		i := slices.IndexFunc(out.Inputs, func(in export.Input) bool { return hasName(p, in, a.Name) })
		if i < 0 || a.Dimension < 0 || a.Dimension >= len(out.Inputs[i].Sizes) {
			return nil, fmt.Errorf("extra/vprof.json names dimension %d of %q, which the graph does not have; "+
				"capture the model again", a.Dimension, a.Name)
		}
		out.Inputs[i].Sizes = slices.Clone(out.Inputs[i].Sizes)
		out.Inputs[i].Sizes[a.Dimension] = export.Size{Int: a.A + a.B*batch}
	}
	at := map[int32]int{}
	for i := range out.Nodes {
		if n := &out.Nodes[i]; n.Block != export.Close {
			at[n.Number] = i
			n.Inputs = slices.Clone(n.Inputs)
		}
	}
	for _, a := range d.batchSizes.Args {
		i, known := at[a.Node]
		if !known || !setInt(out.Nodes[i].Inputs, a, a.A+a.B*batch) {
			return nil, fmt.Errorf("extra/vprof.json names argument %q of node %d, which the graph does not have; "+
				"capture the model again", a.Name, a.Node)
		}
	}
	return &out, nil
}

// setInt replaces an integer in a node's arguments.
func setInt(args []export.NamedArgument, a export.AffineArg, value int64) bool {
	i := slices.IndexFunc(args, func(n export.NamedArgument) bool { return n.Name == a.Name })
	if i < 0 {
		return false
	}
	switch arg := &args[i]; {
	case arg.Kind == export.Integer && a.Index == 0:
		arg.Int = value
	case arg.Kind == export.List && a.Index >= 0 && a.Index < len(arg.List) && arg.List[a.Index].Kind == export.Integer:
		arg.List = slices.Clone(arg.List)
		arg.List[a.Index].Int = value
	default:
		return false
	}
	return true
}

func (d *dimensions) symbolValues(c models.Case) map[string]int64 {
	out := map[string]int64{}
	if d.batch != "" {
		out[d.batch] = int64(c.Batch)
		if n := c.Settings[d.unit]; d.unit != "" && n > 0 {
			out[d.batch] = n
		}
		for _, symbol := range d.otherSymbols {
			out[symbol] = out[d.batch]
		}
	}
	for symbol, name := range d.symbols {
		out[symbol] = c.Settings[name]
	}
	return out
}

package fit

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
)

// searchVariants searches variants of the best strategies: the same configurations with other options of the strategy.
func (s *Search) searchVariants(ctx context.Context, f *report.Fit) error {
	var cases []models.Case
	for _, l := range casesToVary(f) {
		c := l.Case
		for _, text := range s.finerStrategies(l) {
			strategy, err := models.ParseStrategy(text)
			if err != nil {
				return err
			}
			if l.possible < l.enough*strategy.BubbleFactor(c.GPUs) { // such a pipeline still waits too long
				continue
			}
			c.Strategy = &strategy
			cases = append(cases, c)
		}
	}
	added, err := s.addCases(ctx, f, cases)
	if slices.ContainsFunc(added, func(c report.Choice) bool { return c.Fits() && c.Case.Strategy.Offload != "" }) {
		f.Warnings = append(f.Warnings, report.Warning{
			What: "samples per second with all on the host (offload=all) count its copies and its optimizer at " +
				"speeds that are assumed: 12 GB/s of the link, 40 GB/s of memory for each process; machines " +
				"differ by a factor of 4",
		})
	}
	return err
}

// addCases adds the choices of further cases, except known and refused ones, ranks all, and returns the added ones.
func (s *Search) addCases(ctx context.Context, f *report.Fit, cases []models.Case) ([]report.Choice, error) {
	known := lists.ToSet(lists.Map(f.Choices, func(c report.Choice) models.CaseKey { return keyOf(c.Case.Case) }))
	cases = slices.DeleteFunc(cases, func(c models.Case) bool {
		defer func() { known[keyOf(c)] = true }()
		return known[keyOf(c)]
	})
	if len(cases) == 0 {
		return nil, nil
	}
	v, err := s.surveyCases(ctx, cases)
	if err != nil {
		return nil, err
	}
	added := lists.Filter(v.choices, func(c report.Choice) bool { return c.Refused == "" })
	f.Choices = append(f.Choices, added...)
	rankChoices(f, s.Model.Stages)
	return added, nil
}

// keyOf returns a key for a configuration without its batch size.
func keyOf(c models.Case) models.CaseKey {
	c.Batch, c.Accumulate = 0, 1
	return c.Key()
}

// variedCase is a case whose variants are searched. Both speeds are in samples per second: the case's own if no
// pipeline stage ever waited, and the one above which searching variants is worthwhile.
type variedCase struct {
	models.Case
	possible, enough float64
}

// casesToVary returns the cases whose variants to search, for every stage on every GPU: the fastest of each strategy,
// and for fully_shard the fastest with and without checkpointing. Cases much slower than the fastest of all are left
// out; a pipeline is compared as if its stages never waited (see [models.Strategy.BubbleFactor]), since more
// micro-batches come close to that. A pipeline that does not fit with single samples does not fit with more
// micro-batches, which add buffers and outputs, nor with more stages per rank, which hold more samples at a time.
func casesToVary(f *report.Fit) []variedCase {
	type kind struct {
		device, stage, strategy string
		recomputed              bool
	}
	type gpu struct{ device, stage string }
	best, fastest := map[kind]report.Choice{}, map[gpu]float64{}
	var order []kind
	for _, c := range f.Choices {
		if c.Refused != "" || c.Case.Strategy == nil {
			continue
		}
		k := kind{c.Device, c.Case.Stage, c.Case.Strategy.Name, c.Case.Checkpointing &&
			c.Case.Strategy.Name == models.FSDP2}
		on := gpu{c.Device, c.Case.Stage}
		fastest[on] = max(fastest[on], c.SamplesPerSecond)
		b, found := best[k]
		if !found {
			order = append(order, k)
		}
		if !found || isBetter(c, b) {
			best[k] = c
		}
	}
	var out []variedCase
	for _, k := range order {
		c := best[k]
		if k.strategy == models.PP && !c.Fits() {
			continue
		}
		l := variedCase{
			c.Case.Case, c.SamplesPerSecond * c.Case.Strategy.BubbleFactor(c.Case.GPUs),
			nearlyAsFastShare * fastest[gpu{k.device, k.stage}],
		}
		if l.possible >= l.enough {
			out = append(out, l)
		}
	}
	return out
}

// nearlyAsFastShare is the share of the fastest case's samples per second from which on a case's variants are searched.
// Variants seldom gain more than the rest.
const nearlyAsFastShare = 0.9

// isBetter reports whether choice a trains faster than b or, if neither fits, needs less memory.
func isBetter(a, b report.Choice) bool {
	if n := cmp.Compare(a.SamplesPerSecond, b.SamplesPerSecond); n != 0 {
		return n > 0
	}
	return !a.Fits() && !b.Fits() && a.Estimate != nil && b.Estimate != nil &&
		a.Estimate.Device.Bytes < b.Estimate.Device.Bytes
}

// finerStrategies returns variants of a case's strategy with other options.
func (s *Search) finerStrategies(l variedCase) []string {
	c := l.Case
	var out []string
	try := func(change func(o *models.Strategy)) {
		o := *c.Strategy
		change(&o)
		out = append(out, o.String())
	}
	switch c.Strategy.Name {
	case models.FSDP2:
		s.finerShards(c, try)
		if l.possible == 0 { // nothing fits
			for _, wrap := range [][]string{nil, {models.WrapEnds}} {
				try(func(o *models.Strategy) { o.Offload, o.Wrap = models.OffloadAll, wrap })
			}
		}
	case models.TP:
		try(func(o *models.Strategy) { o.Reshard = "true" })
	case models.PP:
		s.finerPipelines(c, try)
	}
	return out
}

// finerPipelines tries more micro-batches, and several stages per rank. If ranks share a stage, it also tries other
// resharding and fewer GPUs per stage.
func (s *Search) finerPipelines(c models.Case, try func(change func(o *models.Strategy))) {
	stages := c.Strategy.PipelineRanks(c.GPUs)
	for _, times := range []int64{2, 4} {
		try(func(o *models.Strategy) { o.Micro = times * stages })
	}
	if !c.Strategy.SharesStages(c.GPUs) {
		try(func(o *models.Strategy) { o.Micro, o.Schedule = 4*stages, models.Interleaved })
		return
	}
	try(func(o *models.Strategy) { o.Micro, o.Reshard = 4*stages, "false" })
	if stages > 2 && stages%2 == 0 {
		try(func(o *models.Strategy) { o.PP, o.Micro = stages/2, 2*stages })
	}
}

// finerShards tries other values of fully_shard's options reshard, replicate, reduce and wrap.
func (s *Search) finerShards(c models.Case, try func(change func(o *models.Strategy))) {
	for _, reshard := range []string{"", "auto", "false"} {
		try(func(o *models.Strategy) { o.Reshard = reshard })
	}
	for n := 2; n < c.GPUs; n *= 2 {
		if c.GPUs%n == 0 && (n == 2 || c.GPUs/n == gpusOfNode) {
			try(func(o *models.Strategy) { o.Replicate = int64(n) })
		}
	}
	if c.Strategy.MP != "" {
		try(func(o *models.Strategy) { o.Reduce = o.MP })
	}
	for _, wrap := range s.wrapVariants(c) {
		try(func(o *models.Strategy) { o.Wrap = wrap })
	}
}

// gpusOfNode is the usual number of GPUs of one machine, which are connected by fast links.
const gpusOfNode = 8

// wrapVariants returns patterns of modules that fully_shard could wrap. By default it wraps the modules of the longest
// list (the blocks). The patterns add all lists of modules, large modules outside of lists (embeddings, the output
// layer), and large modules inside the blocks.
func (s *Search) wrapVariants(c models.Case) [][]string {
	c, err := s.Model.Complete(c)
	if err != nil {
		return nil
	}
	trainer, err := s.Model.Build(c)
	w, ok := trainer.(models.Wrappable)
	if err != nil || !ok {
		return nil
	}
	parts := w.WrappableModules()
	var blocks, listed, beside, within []string
	size := map[string]int64{}
	for _, p := range parts {
		size[p.Path] = p.Parameters
	}
	for _, p := range parts {
		pattern := wildcardName(p.Path)
		parent := strings.TrimSuffix(p.Path, path.Ext(p.Path))
		switch outer := wildcardName(parent); {
		case p.Block:
			blocks, listed = lists.Union(blocks, pattern), lists.Union(listed, pattern)
		case p.Path == "" || p.Parameters == 0:
		case strings.Count(pattern, "*") == 1 && strings.HasSuffix(pattern, "*"):
			listed = lists.Union(listed, pattern)
		case slices.Contains(blocks, outer) && 5*p.Parameters >= size[parent]:
			within = lists.Union(within, pattern)
		case !strings.Contains(pattern, "*") && 20*p.Parameters >= size[""] && !containsModule(parts, p.Path):
			beside = lists.Union(beside, pattern)
		}
	}
	var out [][]string
	if len(listed) > len(blocks) {
		out = append(out, listed)
	}
	if len(blocks) == 0 {
		return out
	}
	for _, m := range beside { // the other side of a tied weight is refused
		out = append(out, append(slices.Clip(blocks), m))
	}
	if len(beside) > 1 {
		out = append(out, append(slices.Clip(blocks), beside...))
	}
	if len(within) > 0 {
		out = append(out, append(slices.Clip(blocks), within...))
	}
	return out
}

// wildcardName returns a module's path with stars in place of numbers.
func wildcardName(module string) string {
	names := strings.Split(module, ".")
	for i, n := range names {
		if n != "" && strings.Trim(n, "0123456789") == "" {
			names[i] = "*"
		}
	}
	return strings.Join(names, ".")
}

// containsModule reports whether the module with the path module contains one of parts.
func containsModule(parts []models.WrappableModule, module string) bool {
	return slices.ContainsFunc(parts,
		func(p models.WrappableModule) bool { return strings.HasPrefix(p.Path, module+".") })
}

// Command trees finds the decision rules of package cudnn from what cuDNN answered (package query): which kernel it
// chooses, and how often that splits the reduction. For each architecture, operation and precision it grows a few
// decision trees over the features of package cudnn, until a leaf has one answer or too few cases. They differ in the
// features that each question may use: all in the first tree, half of them, drawn anew each time, in the others.
//
// Boundaries found by asking along one size at a time run straight through all others, at one number of samples times
// points or one remainder of a tile: the heuristics look like decision trees themselves, one for the kernel and others
// for the splits of each. So the trees here learn the whole kernel, though only what its workspace depends on is kept
// of it, and the splits apart: a third fewer misses than with trees that learn what counts at once.
//
//	go run ./tools/cudnn/trees -o profiler/stack/cudnn/9.19 answers/sm120-*.gz
//
// With -correct the rules stay as they are, and further trees learn from other answers where the rules are wrong and
// what holds there. With -over the rules come from another release of cuDNN that answers nearly alike, and only the
// further trees are written.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/forest"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
	"github.com/vprof/vprof/tools/cudnn/answers"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("trees: ")
	f := fitter{}
	flag.StringVar(&f.dir, "o", "rules", "write the rules to `directory`")
	flag.IntVar(&f.trees, "trees", 3, "trees that vote")
	flag.IntVar(&f.support, "support", 1, "fewest cases behind a leaf that names an engine")
	flag.IntVar(&f.splitSupport, "split-support", 1, "the same for how often engines split")
	flag.StringVar(&f.check, "check", "", "tell how well the rules do on the answers in `file`")
	flag.Int64Var(&f.fold, "held-out", -1,
		"leave out `fold` 0 to 4 of the geometries, and tell how well the rules do on it")
	flag.BoolVar(&f.correct, "correct", false,
		"keep the rules that there are, and find where they are wrong on the answers")
	flag.StringVar(&f.trusted, "trusted", "", "with -correct: `file` of questions that the rules were grown from")
	flag.StringVar(&f.over, "over", "",
		"with -correct: the rules that there are lie in another `directory`, and stay there")
	records := flag.String("records", "",
		"find from recorded calls in `file` where kernels run that cuDNN proposes only if there is a device")
	flag.Parse()
	if f.trees < 1 || f.trees > forest.MostTrees {
		log.Fatalf("-trees %d: want 1 to %d", f.trees, forest.MostTrees)
	}
	if !f.correct && (f.over != "" || f.trusted != "") {
		log.Fatal("-over and -trusted go with -correct")
	}
	if *records != "" {
		if err := f.onDevices(*records); err != nil {
			log.Fatal(err)
		}
	}
	generations := map[int][]string{}
	for _, path := range flag.Args() {
		var g int
		if _, err := fmt.Sscanf(filepath.Base(path), "sm%d-", &g); err != nil {
			log.Fatalf("%s: the name of a file of answers starts with its architecture, like sm120-1.gz: %v", path, err)
		}
		generations[g] = append(generations[g], path)
	}
	for g, paths := range generations {
		if err := f.fit(g, paths); err != nil {
			log.Fatal(err)
		}
	}
}

// fitter computes and writes the rules of architectures.
type fitter struct {
	dir                          string
	trees, support, splitSupport int
	fold                         int64
	check                        string
	correct                      bool
	trusted                      string
	over                         string
}

// operation is a kind of convolution call that has its own decision trees.
type operation struct {
	direction cudnn.Direction
	half      bool
}

func operationOf(a *answers.Answer) operation {
	return operation{a.Operation, a.Config.DType != cudnn.F32}
}

func (o operation) String() string {
	if o.half {
		return o.direction.String() + ", half"
	}
	return o.direction.String() + ", fp32"
}

// fit reads the answers of one architecture and writes its rules.
func (f *fitter) fit(generation int, paths []string) error {
	gpu := cudnn.GPU{Capability: generation, Memory: 1 << 60}
	cases := map[operation][]labeled{}
	variants := census{}
	for _, path := range paths {
		err := answers.Read(path, func(a answers.Answer) {
			s := cudnn.NewStudy(a.Config, a.Operation, gpu)
			c := labeled{Answer: a, study: s, found: explanations(s, &a)}
			for _, choice := range c.found {
				variants[variantOf(&a, choice)]++
			}
			o := operationOf(&a)
			cases[o] = append(cases[o], c)
		})
		if err != nil {
			return err
		}
	}
	if f.check != "" {
		err := answers.Read(f.check, func(a answers.Answer) {
			o := operationOf(&a)
			cases[o] = append(cases[o], labeled{
				Answer: a,
				study:  cudnn.NewStudy(a.Config, a.Operation, gpu), check: true,
			})
		})
		if err != nil {
			return err
		}
	}
	if f.trusted != "" {
		err := answers.ReadQuestions(f.trusted, func(q query.Question) {
			a := answers.Answer{Question: q}
			o := operationOf(&a)
			cases[o] = append(cases[o], labeled{
				Answer: a, study: cudnn.NewStudy(q.Config, q.Operation, gpu),
				trusted: true,
			})
		})
		if err != nil {
			return err
		}
	}
	var wait sync.WaitGroup
	errs := make(chan error, len(cases))
	for o, all := range cases {
		wait.Go(func() { errs <- f.operation(generation, o, all, variants) })
	}
	wait.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// operation finds and writes the rules of one operation.
func (f *fitter) operation(generation int, o operation, cases []labeled, variants census) error {
	var train, held []labeled
	first, before, err := f.first(generation, cases[0].study.Operation(), o)
	if err != nil {
		return err
	}
	if first != nil {
		keep(first, cases)
	}
	unexplained := 0
	for _, c := range cases {
		switch {
		case c.check:
			held = append(held, c)
		case f.fold >= 0 && !c.trusted && fold(c.Config) == f.fold:
			held = append(held, c)
		case len(c.found) == 0:
			unexplained++
		default:
			train = append(train, c)
		}
	}
	if f.over != "" && !slices.ContainsFunc(train, func(c labeled) bool { return c.found[0].Engine != cudnn.Kept }) {
		log.Printf("sm%d %v: %d cases, nothing to correct", generation, o, len(train))
		return nil
	}
	learned, err := f.learn(train, variants)
	if err != nil {
		return fmt.Errorf("sm%d %v: %w", generation, o, err)
	}
	ensemble, _, err := cudnn.DecodeEnsemble(learned)
	if err != nil {
		return fmt.Errorf("sm%d %v: %w", generation, o, err)
	}
	rules := slices.Concat(before, learned)
	if len(held) > 0 {
		log.Printf("sm%d %v: held out %d cases, %v", generation, o, len(held), examine(first, ensemble, held))
	}
	log.Printf("sm%d %v: %d cases, %d more without a formula, %d KiB", generation, o, len(train), unexplained,
		len(rules)>>10)
	return os.WriteFile(filepath.Join(f.dir, f.file(generation, cases[0].study.Operation(), o)), rules, 0o644)
}

// file returns the name of the file to write.
func (f *fitter) file(generation int, name string, o operation) string {
	if f.over != "" {
		return cudnn.CorrectionsFile(generation, name, o.half)
	}
	return cudnn.RuleFile(generation, name, o.half)
}

// chooser is a set of rules that make a choice from the features of a case.
type chooser interface {
	Choose(x []float32) cudnn.Choice
}

// first returns the rules to correct, nil if none are, and the part of the rule file that precedes the corrections.
func (f *fitter) first(generation int, name string, o operation) (rules chooser, before []byte, err error) {
	if !f.correct {
		return nil, nil, nil
	}
	path := filepath.Join(cmp.Or(f.over, f.dir), cudnn.RuleFile(generation, name, o.half))
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	if f.over != "" {
		rules, err = cudnn.DecodeRules(b)
	} else {
		var corrections []byte
		rules, corrections, err = cudnn.DecodeEnsemble(b)
		before = b[:len(b)-len(corrections)]
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return rules, before, nil
}

// keep marks the cases that the rules answer right or that are trusted.
func keep(rules chooser, cases []labeled) {
	for i := range cases {
		c := &cases[i]
		if c.trusted || !c.check && given(c.study, rules.Choose(c.study.Features())) == c.Bytes {
			c.found = []cudnn.Choice{{Engine: cudnn.Kept}}
		}
	}
}

// given returns the workspace in bytes of a choice; zero if its engine does not apply.
func given(s cudnn.Study, c cudnn.Choice) int64 {
	if !s.Can(c.Engine) {
		return 0
	}
	return s.Bytes(c)
}

// examine reports how often an ensemble predicts the exact workspace, or nearly. With rules that it corrects, it also
// reports how often these alone are exact.
func examine(first chooser, v *cudnn.Ensemble, held []labeled) string {
	exact, near, before := 0, 0, 0
	for _, c := range held {
		x := c.study.Features()
		choice := v.Choose(x)
		if first != nil {
			old := first.Choose(x)
			if given(c.study, old) == c.Bytes {
				before++
			}
			if choice.Engine == cudnn.Kept {
				choice = old
			}
		}
		d := given(c.study, choice) - c.Bytes
		if d == 0 {
			exact++
		}
		if max(d, -d) <= c.Bytes/50+64<<10 {
			near++
		}
	}
	n := float64(len(held))
	text := fmt.Sprintf("exact %.1f %%, within 2 %% and 64 KiB %.1f %%", 100*float64(exact)/n, 100*float64(near)/n)
	if first != nil {
		text += fmt.Sprintf("; exact without corrections %.1f %%", 100*float64(before)/n)
	}
	return text
}

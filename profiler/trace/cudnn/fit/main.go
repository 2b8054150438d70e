// Command fit finds the decision rules of package cudnn from recorded
// workspaces: which engine class cuDNN chooses, and how far it splits the
// reduction. It grows one small decision tree per operation and precision, best
// split first, each leaf backed by a dozen cases or more, over the features of
// package cudnn only. With -held-out it keeps away from the fifth of the
// geometries that the accuracy test measures on.
//
//	go run ./fit -o rules.txt testdata/conv-workspaces.jsonl.gz
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/vectors"
)

func main() {
	log.SetFlags(0)
	out := flag.String("o", "rules.txt", "write the rules to `file`")
	leaves := flag.Int("leaves", 250, "most leaves of an engine tree")
	splitLeaves := flag.Int("split-leaves", 150, "most leaves of a split tree")
	support := flag.Int("support", 12, "fewest cases behind a leaf")
	heldOut := flag.Bool("held-out", false, "leave out the geometries that the accuracy test holds back")
	without := flag.String("without", "", "leave out a `board`, to see how rules do on one they never saw")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("fit: want the recorded vectors as the one argument")
	}
	vs, err := vectors.Read(flag.Arg(0))
	if err != nil {
		log.Fatal("fit: ", err)
	}
	f, err := os.Create(*out)
	if err != nil {
		log.Fatal("fit: ", err)
	}
	w := bufio.NewWriter(f)
	fmt.Fprintf(w, "# Decision rules of package cudnn, written by command fit: do not edit.\n")
	fmt.Fprintf(w, "# A line is a question, its two answers follow: first yes, then no.\n")
	cases := collect(vs, *heldOut, *without)
	for _, kind := range []string{"fprop", "dgrad", "wgrad"} {
		for _, precision := range []string{"half", "fp32"} {
			name := kind + " " + precision
			log.Print(name, ": ", len(cases[name]), " cases")
			fmt.Fprintf(w, "\nengine %s\n", name)
			grow(engineSamples(cases[name]), *leaves, *support, classify{}).write(w, "")
			fmt.Fprintf(w, "\nsplit %s\n", name)
			grow(splitSamples(cases[name]), *splitLeaves, *support, regress{}).write(w, "")
		}
	}
	if err := w.Flush(); err != nil {
		log.Fatal("fit: ", err)
	}
	if err := f.Close(); err != nil {
		log.Fatal("fit: ", err)
	}
}

// observation is one direction of one vector, with the engine class its kernels
// tell.
type observation struct {
	study  cudnn.Study
	x      []float32
	engine cudnn.Engine
	bytes  int64
	weight float64
}

// collect sorts the training cases by the tree they belong to.
func collect(vs []vectors.Vector, heldOut bool, without string) map[string][]observation {
	cases := map[string][]observation{}
	for _, v := range vs {
		if v.Held && heldOut || v.Board.Name == without {
			continue
		}
		for d := range v.Workspaces {
			s := cudnn.NewStudy(v.Config, cudnn.Direction(d), v.Board)
			o := observation{study: s, x: s.Features()}
			// The last is cuDNN's; a copy of the weight may come before it.
			if n := len(v.Workspaces[d]); n > 0 {
				o.bytes = v.Workspaces[d][n-1]
			}
			e, known := engineOf(v.Kernels[d], o.bytes, v.Config)
			if !known {
				e = nearest(s, o.bytes)
			}
			o.engine = e
			o.weight = weight(v, s)
			cases[s.Tree()] = append(cases[s.Tree()], o)
		}
	}
	return cases
}

// nearest is the splitting or direct engine whose bytes come closest.
func nearest(s cudnn.Study, bytes int64) cudnn.Engine {
	best, gap := cudnn.Direct, bytes
	for _, e := range []cudnn.Engine{cudnn.Copies, cudnn.Looped, cudnn.Grouped, cudnn.Unpadded, cudnn.Im2col} {
		if d := s.Bytes(e) - bytes; max(d, -d) < gap {
			best, gap = e, max(d, -d)
		}
	}
	return best
}

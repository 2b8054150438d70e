// Command fit finds the decision rules of package cudnn from recorded
// workspaces: which engine cuDNN chooses, with which tile and how often the
// reduction is split. It grows a few decision trees per architecture, operation
// and precision over the features of package cudnn, until a leaf has one answer
// or too few cases. They differ in the features that each question may use: all
// in the first tree, half of them, drawn anew each time, in the others. With -held-out it keeps away from the fifth of the
// geometries that the accuracy test measures on; with -batch from a batch size.
//
//	go run ./fit -o rules testdata/conv-workspaces.jsonl.gz
package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/vectors"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("fit: ")
	out := flag.String("o", "rules", "write the rules to `directory`")
	trees := flag.Int("trees", 3, "trees that vote")
	support := flag.Int("support", 1, "fewest cases behind a leaf")
	heldOut := flag.Bool("held-out", false, "leave out the geometries that the accuracy test holds back")
	batch := flag.Int64("batch", 0, "leave out a batch `size`")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("want the recorded vectors as the one argument")
	}
	vs, err := vectors.Read(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	kept := vs[:0]
	for _, v := range vs {
		if (!v.Held || !*heldOut) && v.Config.N != *batch {
			kept = append(kept, v)
		}
	}
	if err := write(*out, collect(kept), *trees, *support); err != nil {
		log.Fatal(err)
	}
}

// operations are the trees of one architecture, in the order they are written.
var operations = []string{"fprop half", "fprop fp32", "dgrad half", "dgrad fp32", "wgrad half", "wgrad fp32"}

// board is what is known of one architecture: its samples by operation.
type board struct {
	generation int
	samples    map[string][]sample
}

// collect sorts the cases by the tree they belong to.
func collect(vs []vectors.Vector) map[int]*board {
	boards := map[int]*board{}
	for _, v := range vs {
		for d := range v.Workspaces {
			s := cudnn.NewStudy(v.Config, cudnn.Direction(d), v.Board)
			generation, operation := s.Tree()
			b := boards[generation]
			if b == nil {
				b = &board{generation, map[string][]sample{}}
				boards[generation] = b
			}
			// The last is cuDNN's; a copy of the weight may come before it.
			var bytes int64
			if n := len(v.Workspaces[d]); n > 0 {
				bytes = v.Workspaces[d][n-1]
			}
			b.samples[operation] = append(b.samples[operation], sample{
				x: s.Features(), answer: choiceOf(s, v.Kernels[d], bytes),
			})
		}
	}
	return boards
}

// write grows the trees and writes a file per board.
func write(dir string, boards map[int]*board, trees, support int) error {
	for _, b := range boards {
		texts := make([]bytes.Buffer, len(operations))
		var wait sync.WaitGroup
		for i, operation := range operations {
			wait.Go(func() {
				fmt.Fprintf(&texts[i], "\n%s\n", operation)
				leaves := 0
				for seed := range trees {
					t := grow(b.samples[operation], support, uint64(seed))
					t.write(&texts[i])
					leaves += t.leaves()
				}
				log.Printf("sm%d %s: %d cases, %d leaves", b.generation, operation, len(b.samples[operation]), leaves)
			})
		}
		wait.Wait()
		var file bytes.Buffer
		z, err := gzip.NewWriterLevel(&file, gzip.BestCompression)
		if err != nil {
			return err
		}
		for _, t := range texts {
			if _, err := t.WriteTo(z); err != nil {
				return err
			}
		}
		if err := z.Close(); err != nil {
			return err
		}
		name := filepath.Join(dir, fmt.Sprintf("sm%d.gz", b.generation))
		if err := os.WriteFile(name, file.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

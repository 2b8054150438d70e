// Command questions makes the convolutions that cuDNN is asked about (package query): convolutions of all models that
// vprof knows, of exported models, some of a list that convolutions.py has made of libraries of models, or shapes drawn
// as neural networks have them, and around those, spread evenly over what a GPU can hold.
//
//	go run ./tools/cudnn/questions -models > questions.txt
//	go run ./tools/cudnn/questions -batches 1,8,64 *.pt2 > questions.txt
//	go run ./tools/cudnn/questions -list libraries.txt -n 1000000 -seed 1 > questions.txt
//	go run ./tools/cudnn/questions -n 1000000 -seed 1 > questions.txt
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("questions: ")
	known := flag.Bool("models", false, "ask about the models that vprof knows, not about drawn shapes")
	list := flag.String("list", "", "draw from the convolutions in `file`")
	sizes := flag.String("batches", "",
		"batch `sizes` to ask models with, separated by commas (default: 35 from 1 to 1024)")
	n := flag.Int("n", 100_000, "draw that many `questions`")
	seed := flag.Uint64("seed", 1, "`number` that the draw starts from")
	flag.Parse()
	out := bufio.NewWriter(os.Stdout)
	asked, err := chosen(*known, flag.Args(), *list, *sizes, *n, *seed)
	if err != nil {
		log.Fatal(err)
	}
	for _, q := range asked {
		if _, err := fmt.Fprintln(out, q); err != nil {
			log.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

// chosen returns the questions of the models that are known, of files, of a list of convolutions, or drawn ones.
func chosen(known bool, files []string, list, sizes string, n int, seed uint64) ([]query.Question, error) {
	at := batches
	if sizes != "" {
		at = nil
		for _, word := range strings.Split(sizes, ",") {
			b, err := strconv.Atoi(word)
			if err != nil || b < 1 {
				return nil, fmt.Errorf("-batches: %q is no batch size", word)
			}
			at = append(at, b)
		}
	}
	switch {
	case len(files) > 0:
		return ofFiles(files, at)
	case known:
		return ofModels(all.Models().All(), at)
	case list != "":
		layers, err := readList(list)
		if err != nil {
			return nil, err
		}
		return ofList(layers, at, n, seed), nil
	}
	d := drawer{Rand: rand.New(rand.NewPCG(seed, 0))}
	drawn := make([]query.Question, n)
	for i := range drawn {
		drawn[i] = d.question()
	}
	return drawn, nil
}

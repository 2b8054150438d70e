// Command questions makes the convolutions that cuDNN is asked about (package
// oracle): those of all models that vprof knows, or shapes drawn as neural
// networks have them, and around those, spread evenly over what a GPU can hold.
//
//	go run ./questions -models > questions.txt
//	go run ./questions -n 1000000 -seed 1 > questions.txt
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"

	"github.com/vprof/vprof/profiler/trace/cudnn/oracle"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("questions: ")
	known := flag.Bool("models", false, "ask about the models that vprof knows, not about drawn shapes")
	n := flag.Int("n", 100_000, "draw that many `questions`")
	seed := flag.Uint64("seed", 1, "`number` that the draw starts from")
	flag.Parse()
	out := bufio.NewWriter(os.Stdout)
	if err := write(out, *known, *n, *seed); err != nil {
		log.Fatal(err)
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

func write(out *bufio.Writer, known bool, n int, seed uint64) error {
	var questions []oracle.Question
	if known {
		var err error
		if questions, err = ofModels(); err != nil {
			return err
		}
	} else {
		d := drawer{Rand: rand.New(rand.NewPCG(seed, 0))}
		for range n {
			questions = append(questions, d.question())
		}
	}
	for _, q := range questions {
		if _, err := fmt.Fprintln(out, q); err != nil {
			return err
		}
	}
	return nil
}

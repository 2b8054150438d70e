// Command vprof estimates the GPU memory of a PyTorch training step before it runs.
package main

import (
	"os"

	"github.com/vprof/vprof/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }

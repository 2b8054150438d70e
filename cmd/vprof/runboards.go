package main

import (
	"strconv"

	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/profiler/device"
)

// commands are the runs that the flags ask for, in their order: of each board, and on it of
// each rank.
func (o *runOptions) commands() ([]script.Command, error) {
	ranks, err := o.ranks()
	if err != nil {
		return nil, err
	}
	on, err := o.places()
	if err != nil {
		return nil, err
	}
	var all []script.Command
	for _, c := range on {
		for _, c.Rank = range ranks {
			all = append(all, c)
		}
	}
	return all, nil
}

// ranks are those that are run.
func (o *runOptions) ranks() ([]int, error) {
	gpus := o.command.GPUs
	if o.rank == allRanks {
		all := make([]int, gpus)
		for i := range all {
			all[i] = i
		}
		return all, nil
	}
	n, err := strconv.Atoi(o.rank)
	if err != nil || n < 0 || n >= gpus {
		return nil, usagef("--rank: %q is neither all nor one of %d ranks; the first is 0 and the last %d",
			o.rank, gpus, gpus-1)
	}
	return []int{n}, nil
}

// places are the command on each board, simulated or of this machine.
func (o *runOptions) places() ([]script.Command, error) {
	named := deviceName{real: o.both}
	if o.device != "" {
		var err error
		if named, err = parseDevice(o.device); err != nil {
			return nil, err
		}
	}
	switch {
	case o.both && !named.real:
		return nil, usagef("--both: --device %s simulates a board; name a GPU of this machine", o.device)
	case o.device != "" && o.board.flags.Changed("gpu"):
		return nil, usagef("--device and --gpu both name a board; give one")
	case named.real:
		return o.local(named.index)
	case named.board != "":
		o.board.gpu = named.board
	}
	if o.board.gpu == "all" {
		return nil,
			usagef("--gpu all: the command runs once for each board; name some, or run it once with --record " +
				"train.vprof," +
				" and \"vprof plan --model train.vprof --gpu all\" shows all")
	}
	gpus, err := o.board.boards()
	if err != nil {
		return nil, err
	}
	o.out.defaultBoard = o.board.defaultBoard(gpus)
	return o.simulated(gpus), nil
}

func (o *runOptions) simulated(gpus []device.GPU) []script.Command {
	all := make([]script.Command, len(gpus))
	for i, gpu := range gpus {
		all[i] = o.command
		all[i].Board = gpu
	}
	return all
}

// local is the command on a GPU of this machine, with --both after a simulated one.
func (o *runOptions) local(index int) ([]script.Command, error) {
	switch {
	case o.board.given():
		return nil,
			usagef("--device and --both take a GPU of this machine; leave --gpu, --gpu-spec and --gpu-memory away")
	case o.command.GPUs > 1:
		return nil, usagef("--gpus: ranks are simulated; without it --device lets a launcher start all of them")
	}
	found, err := o.app.detect(index)
	if err != nil {
		return nil, err
	}
	c := o.command
	c.Board, c.Device, c.Others = found.GPU, "cuda:"+strconv.Itoa(index), found.Others
	if o.both {
		return append(o.simulated([]device.GPU{found.GPU}), c), nil
	}
	return []script.Command{c}, nil
}

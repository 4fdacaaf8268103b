// The reference program writes the reference documentation: the programs' flags, as the programs
// themselves print them, and the StorageClass parameters, from the table that parses them. Usage:
// go run ./hack/reference DIR
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/snapshotparams"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
)

type program struct {
	name string
	// folder holds the folder of the program.
	folder      string
	description string
	subcommands []string
}

func programs() []program {
	return []program{
		{
			name:        "azuredisk",
			folder:      "cmd",
			description: "The driver. Every flag can also be set in the file named by `--config`, under its own name, and by an environment variable: its name in upper case with `AZUREDISK_` before it.",
			subcommands: []string{"controller", "node", "scheduler", "azure-role"},
		},
		{
			name:        "kubectl-azuredisk",
			folder:      "cli",
			description: "A plug-in of kubectl that says why a volume is not ready, lists and shows volumes and nodes, says what would happen if nodes were lost, has changes made that wait for a restart, checks an installation, and collects what support needs. [Explain](../guides/explain.md) shows how to use it, and [Output](cli-output.md#exit-codes) has the exit codes.",
			subcommands: []string{"why", "get", "ui", "what-if", "apply-pending", "doctor", "preflight", "bundle", "version"},
		},
		{
			name:        "azuresim",
			folder:      "cmd",
			description: "The Azure Compute simulator.",
			subcommands: []string{"serve", "hypervisor", "guest serve", "guest run", "imds", "verify"},
		},
		{
			name:        "playground",
			folder:      "playground/cmd",
			description: "A real Kubernetes of several nodes on one Linux machine, and the scenarios that are played on it. `playground run --list` prints the scenarios.",
			subcommands: []string{"up", "down", "status", "run", "lifecycle", "migration", "guide", "latency", "node", "enter",
				"load", "kubectl", "driver", "images", "programs", "selftest"},
		},
	}
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: reference DIR")
	}
	bin, err := os.MkdirTemp("", "reference")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(bin)
	for _, p := range programs() {
		if err := write(p, bin, filepath.Join(os.Args[1], p.name+"-flags.md")); err != nil {
			log.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		"../troubleshooting.md": troubleshooting(), "reasons.md": reasons(), "checks.md": checksPage(),
		"conditions.md": conditionsPage(),
	} {
		if err := os.WriteFile(filepath.Join(os.Args[1], file), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	if err := writeRole(filepath.Join(bin, "azuredisk"), os.Args[1]); err != nil {
		log.Fatal(err)
	}
	if err := writeParameters(filepath.Join(os.Args[1], "storageclass-parameters.md")); err != nil {
		log.Fatal(err)
	}
	if err := writeMutableParameters(filepath.Join(os.Args[1], "volumeattributesclass-parameters.md")); err != nil {
		log.Fatal(err)
	}
	if err := writeSnapshotParameters(filepath.Join(os.Args[1], "snapshotclass-parameters.md")); err != nil {
		log.Fatal(err)
	}
}

// writeRole writes the role definition that the driver needs at Azure, and the page that says what
// each of its actions is for.
func writeRole(executable, dir string) error {
	for file, make := range map[string]struct {
		before string
		args   []string
	}{
		"azure-role.json": {args: []string{"azure-role"}},
		"azure-role.md":   {before: rolePage, args: []string{"azure-role", "--markdown"}},
	} {
		show := exec.Command(executable, make.args...)
		show.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
		text, err := show.Output()
		if err != nil {
			return fmt.Errorf("%s of azuredisk: %w", strings.Join(make.args, " "), err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), append([]byte(make.before), text...), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const rolePage = "# The role that the driver needs at Azure\n\n" +
	"These are the actions of all calls that the driver makes at Azure, and no others. [azure-role.json](azure-role.json) is the role definition with all of them, for a\n" +
	"subscription whose ID you put in; `azuredisk azure-role --subscription=ID --resource-group=NAME` prints it for yours. Where to assign it is in the\n" +
	"[guide to credentials](../guides/credentials.md#permissions-of-the-identity).\n\n" +
	"An action with an entry in the last column can be left out where that is not used.\n\n" +
	"This page is generated from the code. That the actions are enough, and that none is one too many, is proved by `provisioner/azure: TestAzureConformsOverAzuresim,\n" +
	"TestTheRoleHoldsNoActionThatIsNotNeeded` on a simulator that refuses what no role grants.\n\n" +
	"Which actions Azure looks for at what a call refers to is known from its own refusals for the sources of snapshots and clones and for encryption sets; for disk\n" +
	"accesses it is inferred from their pattern.\n\n"

const strictness = "Names are compared without regard to case; values are exact. An unknown parameter, a value that is not allowed and parameters that\n" +
	"contradict each other are refused with `INVALID_ARGUMENT`, and the message names the parameter, the value and what is allowed.\n"

func writeParameters(path string) error {
	return writeTable(path, "# StorageClass parameters\n\n"+strictness+
		"Parameters without an effect are accepted so that StorageClasses of the V1 driver go on working.\n\n",
		volumeparams.Keys())
}

func writeMutableParameters(path string) error {
	return writeTable(path, "# VolumeAttributesClass parameters\n\n"+strictness+
		"So is a parameter that a disk has for life. What is not named stays as it is.\n\n", volumeparams.MutableKeys())
}

func writeSnapshotParameters(path string) error {
	return writeTable(path, "# VolumeSnapshotClass parameters\n\n"+strictness+
		"Parameters without an effect are accepted so that VolumeSnapshotClasses of the V1 driver go on working.\n"+
		"What the parameters do together is told in the [guide to snapshots](../guides/snapshots.md).\n\n", snapshotparams.Keys())
}

func writeTable[P any](path, heading string, keys paramtable.Table[P]) error {
	var page bytes.Buffer
	page.WriteString(heading + "This page is generated from the table that parses the parameters.\n\n" +
		"| parameter | allowed | default | effect | what the V1 driver does instead |\n|---|---|---|---|---|\n")
	for _, key := range keys {
		names := "`" + strings.Join(append([]string{key.Name}, key.Aliases...), "`, `") + "`"
		effect := key.Effect
		if effect == "" && key.Set == nil {
			effect = "none"
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s | %s |\n", names, cell(key.Allowed), cell(key.Default), cell(effect),
			cell(key.V1))
	}
	return os.WriteFile(path, page.Bytes(), 0o644)
}

// cell is a text as a cell of a table takes it.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;").Replace(text)
}

func write(p program, bin, path string) error {
	executable := filepath.Join(bin, p.name)
	build := exec.Command("go", "build", "-o", executable, ".")
	build.Dir = filepath.Join(p.folder, p.name) // with the flags of make, by which Go has most of it in its cache
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", p.name, err, out)
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, "# Flags of %s\n\n%s\n\nThis page is generated from the programs' own help.\n", p.name, p.description)
	global := ""
	for _, sub := range p.subcommands {
		show := exec.Command(executable, append([]string{"help"}, strings.Fields(sub)...)...)
		// A setting in the caller's environment is not a default.
		show.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
		help, err := show.Output()
		if err != nil {
			return fmt.Errorf("help of %s %s: %w", p.name, sub, err)
		}
		own, flags, _ := strings.Cut(string(help), "\nGlobal Flags:\n")
		global = cmp.Or(global, flags)
		if flags != global {
			own = string(help)
		}
		fmt.Fprintf(&page, "\n## %s %s\n\n```\n%s```\n", p.name, sub, shortened(own, sub))
	}
	if global != "" {
		fmt.Fprintf(&page, "\n## Flags of all of them\n\n```\n%s```\n", global)
	}
	return os.WriteFile(path, page.Bytes(), 0o644)
}

var (
	helpFlag   = regexp.MustCompile(`(?m)^  -h, --help .*\n`)
	exitCodes  = regexp.MustCompile(`(?m)^Exit codes:\n(?:  .*\n)+\n`)
	scenarios  = regexp.MustCompile(`(?m)^Scenarios:\n(?:  .*\n)+\n`)
	emptyFlags = regexp.MustCompile(`\nFlags:\n(\n|\z)`)
)

// shortened leaves out what all helps have, the exit codes that are in the table of cli-output.md, and the list of
// scenarios, which a command prints.
func shortened(help, subcommand string) string {
	help = scenarios.ReplaceAllString(helpFlag.ReplaceAllString(help, ""), "")
	if subcommand != "apply-pending" {
		help = exitCodes.ReplaceAllString(help, "")
	}
	return emptyFlags.ReplaceAllString(help, "$1")
}

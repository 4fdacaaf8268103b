// Command program stands for the driver in tests.
package main

import "os"

func main() { os.Stdout.WriteString("the program\n") }

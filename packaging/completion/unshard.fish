# SPDX-License-Identifier: Apache-2.0
# fish completion for unshard(1); what is offered comes from --help, as for bash.

function __unshard_commands
	unshard --help 2>/dev/null | string replace -rf '^  ([a-z]+)  +(.*)' '$1\t$2'
end

function __unshard_command
	set -l said (commandline -opc)
	echo $said[2]
end

function __unshard_flags
	unshard (__unshard_command) --help 2>/dev/null |
		string replace -rf '^ +(?:(-[a-z]), )?(--[a-z-]+).*' '$1 $2' | string split -n ' '
end

# After -o: NAME, NAME= or NAME=VALUE, of what follows the last comma.
function __unshard_options
	set -l word (commandline -ct | string replace -r '^-o' '')
	set -l done (string replace -r '[^,]*$' '' -- $word)
	switch (string replace -r '.*,' '' -- $word)
		case 'format=*'
			unshard --formats 2>/dev/null | string replace -rf '^(\S+).*' "$done"'format=$1'
		case 'engine=*'
			printf '%sengine=%s\n' "$done" auto "$done" plain "$done" uring
		case '*=*'
			set -l name (string replace -r '=[^,]*$' = -- $word)
			__fish_complete_path (string replace -r '.*=' '' -- $word) |
				string replace -r '^' $name
		case '*'
			unshard (__unshard_command) --help=all 2>/dev/null |
				string match -r '^-o NAME|^  [a-z][a-z-]*=?|^$' |
				sed -n '/^-o NAME/,$s/^  /'(string escape --style=regex -- $done | string replace -a / '\\/')'/p'
	end
end

# What the --FLAG before takes: the words that its help lists after a colon.
function __unshard_values
	set -l said (commandline -opc)
	string match -q -- '--*' $said[-1]; or return 1
	COLUMNS=100 unshard $said[2] --help 2>/dev/null |
		string replace -rf -- "^ *$said[-1] [A-Z]+  .*: ([a-z, ]*)\\.\$" '$1' |
		string replace -ra ',| or ' ' ' | string split -n ' '
end

# The checkpoint before a tensor's name.
function __unshard_checkpoint
	set -l said (commandline -opc)
	test (count $said) -gt 2; and test -e $said[-1]; and echo $said[-1]
end

function __unshard_tensors
	unshard ls --json (__unshard_checkpoint) 2>/dev/null |
		string replace -rf '.*"name": ?"([^"\\\\]*)".*' '$1'
end

complete -c unshard -n __fish_use_subcommand -xa '(__unshard_commands)'
complete -c unshard -n __fish_use_subcommand -l help
complete -c unshard -n __fish_use_subcommand -l version
complete -c unshard -n __fish_use_subcommand -l formats
complete -c unshard -n 'not __fish_use_subcommand' -s o -xa '(__unshard_options)'
complete -c unshard -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -xa '(__unshard_flags)'
complete -c unshard -n '__fish_seen_subcommand_from ls inspect plan cat heal; and __unshard_checkpoint >/dev/null' -xa '(__unshard_tensors)'
complete -c unshard -n 'not __fish_use_subcommand; and __unshard_values >/dev/null' -xa '(__unshard_values)'
